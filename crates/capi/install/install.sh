#!/usr/bin/env bash
# Builds the C interface and installs it where C programs look for it: `cargo xtask install --prefix DIR`.
#
#     crates/capi/install/install.sh DIR [PROFILE]
#
# | file | what |
# |---|---|
# | lib/libprobe_sync.so.0, libprobe_sync.so | the shared library; its symbols bear the version PROBE_SYNC_0 |
# | lib/libprobe_sync.a | the same for static linking |
# | include/probe_sync.h, probe_sync_mpi.h | the headers |
# | share/probe_sync/probe_sync_mpi.c | sessions over MPI, to be compiled by the user's mpicc |
# | share/probe_sync/probe_sync_pmpi.c | finds late ranks of programs that do not know of it; compiled likewise |
# | lib/pkgconfig/probe_sync.pc | for pkg-config, relative to itself |
# | lib/cmake/probe_sync/ | for find_package(probe_sync) |
# | bin/probe_sync | the command, if it was built in the same profile |
#
# cargo makes the archive and gcc links the library from it: rustc hands a version script of its own to the linker for a cdylib, and another one
# next to it has no effect. Everything but ps_* is local, so that two libraries written in Rust can live in one process. The archive is a crate type
# of its own here, so that no feature of another package (MPI above all) gets into it.
set -euo pipefail

mkdir -p "$1"
prefix=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
profile=${2:-release}
built=${CARGO_TARGET_DIR:-target}/${profile/#dev/debug}
libraries="-lgcc_s -lutil -lrt -lpthread -lm -ldl" # what Rust's standard library needs of the system
version=$(cargo pkgid --package probe-sync-capi | sed 's/.*[#@]//')
cargo rustc --locked --package probe-sync-capi --lib --crate-type staticlib --profile "$profile"

put() { install -D -m "${3:-644}" "$1" "$prefix/$2"; } # A new file: a program that runs with the old one is not disturbed.
fill() { sed "s|@VERSION@|$version|; s|@LIBRARIES@|$libraries|" "crates/capi/install/$1.in" | put /dev/stdin "$2/$1"; }

put "$built/libprobe_sync_capi.a" lib/libprobe_sync.a
put crates/capi/include/probe_sync.h include/probe_sync.h
put crates/capi/include/probe_sync_mpi.h include/probe_sync_mpi.h
put crates/capi/src/probe_sync_mpi.c share/probe_sync/probe_sync_mpi.c
put crates/capi/src/probe_sync_pmpi.c share/probe_sync/probe_sync_pmpi.c
put crates/capi/install/probe_syncConfig.cmake lib/cmake/probe_sync/probe_syncConfig.cmake
fill probe_sync.pc lib/pkgconfig
fill probe_syncConfigVersion.cmake lib/cmake/probe_sync
if [[ $profile == release && -e $built/probe_sync ]]; then put "$built/probe_sync" bin/probe_sync 755; fi

cd "$prefix/lib"
strip --strip-debug libprobe_sync.a # Two thirds of it are lines of source that nobody steps through.
# Of the whole archive only what ps_* needs stays. It is never unloaded: a thread may run in it.
echo 'PROBE_SYNC_0 { global: ps_*; local: *; };' > libprobe_sync.map
# shellcheck disable=SC2086 # The libraries are several words.
gcc -shared -o libprobe_sync.so.0 -Wl,-soname,libprobe_sync.so.0 -Wl,--version-script=libprobe_sync.map -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,defs \
    -Wl,--strip-debug -Wl,--as-needed -Wl,--whole-archive libprobe_sync.a -Wl,--no-whole-archive $libraries
rm libprobe_sync.map
ln -sf libprobe_sync.so.0 libprobe_sync.so
echo "installed into $prefix; \`pkg-config --cflags --libs probe_sync\` with"
echo "  PKG_CONFIG_PATH=$prefix/lib/pkgconfig"
