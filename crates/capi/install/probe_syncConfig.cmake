# probe_sync::probe_sync (shared) and probe_sync::probe_sync_static. With COMPONENTS mpi also probe_sync::probe_sync_mpi (static): sessions over the MPI that
# find_package(MPI) finds, compiled here, because MPIs differ in their binary interfaces.
get_filename_component(_probe_sync_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET probe_sync::probe_sync)
  add_library(probe_sync::probe_sync SHARED IMPORTED)
  set_target_properties(probe_sync::probe_sync PROPERTIES
    IMPORTED_LOCATION "${_probe_sync_prefix}/lib/libprobe_sync.so.0"
    IMPORTED_SONAME "libprobe_sync.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_probe_sync_prefix}/include")
  add_library(probe_sync::probe_sync_static STATIC IMPORTED)
  set_target_properties(probe_sync::probe_sync_static PROPERTIES
    IMPORTED_LOCATION "${_probe_sync_prefix}/lib/libprobe_sync.a"
    INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;pthread;m;dl"
    INTERFACE_INCLUDE_DIRECTORIES "${_probe_sync_prefix}/include")
endif()
if("mpi" IN_LIST probe_sync_FIND_COMPONENTS AND NOT TARGET probe_sync::probe_sync_mpi)
  include(CMakeFindDependencyMacro)
  find_dependency(MPI COMPONENTS C)
  find_dependency(Threads)
  add_library(probe_sync_mpi STATIC "${_probe_sync_prefix}/share/probe_sync/probe_sync_mpi.c")
  set_target_properties(probe_sync_mpi PROPERTIES C_STANDARD 11 POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(probe_sync_mpi PUBLIC probe_sync::probe_sync MPI::MPI_C PRIVATE Threads::Threads)
  add_library(probe_sync::probe_sync_mpi ALIAS probe_sync_mpi)
endif()
unset(_probe_sync_prefix)
