"""Adapters that let the ranks of a job find each other through their launcher.

Every adapter returns a `Group` for `probe_sync.start(group=...)`, and every rank must call it. With `over_torch` and `over_jax` all messages pass through
the launcher's own store, and no port is opened for them. `from_torch`, `from_jax` and `from_mpi4py`
send an id from rank 0 to the other ranks, so there is no port or key to configure. `from_env` and `from_hosts` are for ranks that can
only read their environment: all ranks derive the same id from rank 0's address, a port and a key.

Anyone who has the id, or knows what it is derived from, can impersonate a rank. The adapters never guess: if the environment lacks something, the
error says what to set.
"""

from __future__ import annotations

import dataclasses
import importlib
import ipaddress
import os
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ._native import Meeting, Messages, agreed_id
from .errors import ConfigError, JoinError

if TYPE_CHECKING:
    # Without torch installed, type checkers treat its groups as Any.
    from torch.distributed import ProcessGroup  # type: ignore[import-not-found, unused-ignore]


class _Communicator(Protocol):
    """The part of a communicator that `from_mpi4py` uses; every mpi4py.MPI.Comm has it."""

    def Get_rank(self) -> int: ...  # noqa: N802
    def Get_size(self) -> int: ...  # noqa: N802
    def bcast(self, obj: Any, root: int = 0) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Group:
    """This process's place among the ranks, and how it meets them."""

    rank: int
    size: int
    unique_id: bytes = dataclasses.field(repr=False)
    """The 128 bytes by which the other ranks find rank 0; the same, or equivalent, on all ranks."""
    meeting: Meeting | None = dataclasses.field(default=None, repr=False)
    """At rank 0: the meeting at which it listens."""
    messages: Messages | None = dataclasses.field(default=None, repr=False)
    """Queues of messages that the launcher's store carries (`over_torch`, `over_jax`), in place of an id."""


def from_torch(group: ProcessGroup | None = None) -> Group:
    """Returns the ranks of `torch.distributed`, using `broadcast_object_list` in `group` (default: all ranks). Every rank of the group must call it."""
    distributed, rank, size = torch_ranks("from_torch", group)
    meeting = Meeting() if rank == 0 else None
    carried = broadcast_by_torch(distributed, group, meeting.unique_id if meeting is not None else None)
    return Group(rank, size, _checked(carried, "torch.distributed"), meeting)


def from_jax() -> Group:
    """Returns the processes of `jax.distributed`, using its key-value store. Every process must call it the same number of times."""
    client, rank, size = jax_processes("from_jax")
    global _jax_calls
    _jax_calls += 1
    key = f"probe_sync/id/{_jax_calls}"
    if rank == 0:
        meeting = Meeting()
        client.key_value_set_bytes(key, meeting.unique_id)
        return Group(rank, size, meeting.unique_id, meeting)
    try:
        carried = client.blocking_key_value_get_bytes(key, _CARRY_MS)
    except Exception as error:
        text = f"from_jax: process 0 did not publish its id within {_CARRY_MS // 1000} s; every process must call from_jax() the same number of times"
        raise JoinError(f"{text} ({error})") from error
    return Group(rank, size, _checked(carried, "jax.distributed"))


def from_mpi4py(comm: _Communicator | None = None) -> Group:
    """Returns the ranks of an mpi4py communicator (default: MPI.COMM_WORLD), using `comm.bcast`. The rounds then run over TCP, without MPI."""
    if comm is None:
        try:
            world: _Communicator = importlib.import_module("mpi4py.MPI").COMM_WORLD
        except ImportError as error:
            raise ConfigError(f"from_mpi4py: mpi4py cannot be imported ({error}); install it, or use from_env()") from error
    else:
        world = comm
    rank, size = int(world.Get_rank()), int(world.Get_size())
    meeting = Meeting() if rank == 0 else None
    carried = world.bcast(meeting.unique_id if meeting is not None else None, root=0)
    return Group(rank, size, _checked(carried, "mpi4py"), meeting)


def from_hosts(hosts: Sequence[str], rank: int, port: int, *, key: str | bytes | None = None, timeout: float = 60.0) -> Group:
    """Returns a group for ranks that know all their hosts: `hosts[r]` is the host of rank `r`. Ranks only connect to the first host.

    Rank 0 listens at `port`. `key` is a secret shared by the job's ranks (default: `PROBE_SYNC_JOB`, otherwise the launcher's
    name for the job, which is guessable). Host names are looked up for up to `timeout` seconds.
    """
    if isinstance(hosts, (str, bytes)) or not hosts:
        raise ConfigError(f"hosts={hosts!r}: give a list with the host of every rank, starting with rank 0")
    return _agreed(hosts[0], rank, len(hosts), port, _known(key, os.environ), timeout)


def from_env(environ: Mapping[str, str] | None = None, *, key: str | bytes | None = None, timeout: float = 60.0) -> Group:
    """Reads the rank from the environment, as set by torchrun, Open MPI, PMI (MPICH, Cray), Slurm, or by hand (RANK and WORLD_SIZE).

    If torch.distributed is initialised, it sends the id (`from_torch`). Otherwise rank 0 listens at MASTER_ADDR and
    PROBE_SYNC_MASTER_PORT, or else at MASTER_PORT (plus one under torchrun, whose store uses that port). If these are not set, the defaults are Slurm's
    first host and a port derived from the job's number, or loopback if Open MPI reports that all ranks are on one host.
    """
    given = os.environ if environ is None else environ
    rank, size, source = _place(given)
    if environ is None and torch_is_up():
        group = from_torch()
        if (group.rank, group.size) != (rank, size):
            raise ConfigError(
                f"{source} gives rank {rank} of {size}, but torch.distributed rank {group.rank} of {group.size}; choose one of them: from_torch(), "
                "or from_hosts(hosts, rank, port)"
            )
        return group
    if size == 1:
        meeting = Meeting(["127.0.0.1"])
        return Group(0, 1, meeting.unique_id, meeting)
    return _agreed(_address(given, source, size), rank, size, _port(given, source), _known(key, given), timeout)


def is_launched(environ: Mapping[str, str] | None = None) -> bool:
    """Returns True if a launcher has set this process's rank in the environment."""
    given = os.environ if environ is None else environ
    return any(rank in given and size in given for _, rank, size in _PLACES)


def torch_is_up() -> bool:
    """Returns True if torch.distributed is initialised in this process."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and bool(distributed.is_available() and distributed.is_initialized())


def torch_ranks(adapter: str, group: ProcessGroup | None) -> tuple[Any, int, int]:
    """Returns `torch.distributed`, and this rank and the number of ranks in `group`."""
    try:
        distributed: Any = importlib.import_module("torch.distributed")
    except ImportError as error:
        raise ConfigError(f"{adapter}: torch cannot be imported ({error}); install it, or use another adapter such as from_env()") from error
    if not distributed.is_available() or not distributed.is_initialized():
        raise ConfigError(f"{adapter}: torch.distributed is not initialised; call torch.distributed.init_process_group() first, or use from_env()")
    rank, size = distributed.get_rank(group), distributed.get_world_size(group)
    if rank < 0:
        raise ConfigError(f"{adapter}: this process is not in that group; omit group, or call it only on the group's ranks")
    return distributed, rank, size


def broadcast_by_torch(distributed: Any, group: ProcessGroup | None, value: object) -> object:
    """Returns the value that the first rank of `group` gives."""
    carried = [value]
    root = 0 if group is None else distributed.get_global_rank(group, 0)
    distributed.broadcast_object_list(carried, src=root, group=group)
    return carried[0]


def jax_processes(adapter: str) -> tuple[Any, int, int]:
    """Returns the client of JAX's key-value store, and this process's number and the number of processes."""
    try:
        distributed: Any = importlib.import_module("jax._src.distributed")
    except ImportError as error:
        raise ConfigError(f"{adapter}: jax cannot be imported ({error}); install it, or use another adapter such as from_env()") from error
    state = distributed.global_state
    if state.client is None:
        raise ConfigError(f"{adapter}: jax.distributed is not initialised; call jax.distributed.initialize() first, or use from_env()")
    return state.client, int(state.process_id), int(state.num_processes)


def _place(given: Mapping[str, str]) -> tuple[int, int, str]:
    """Returns rank, size, and the launcher whose variables give them."""
    found = [(name, _numbers(given, rank, size)) for name, rank, size in _PLACES if rank in given and size in given]
    whole = {name: place for name, place in found}
    if _BY_HAND in whole and "TORCHELASTIC_RUN_ID" in given:
        # torchrun, the innermost launcher: its workers inherit the variables of what started it.
        whole = {_BY_HAND: whole[_BY_HAND]}
    elif len(whole) > 1:
        # Under mpirun these are the daemon's, not the rank's.
        whole.pop("Slurm", None)
    if not whole:
        raise ConfigError(_missing(given))
    if len(set(whole.values())) > 1:
        told = ", ".join(f"{name} gives rank {rank} of {size}" for name, (rank, size) in whole.items())
        raise ConfigError(f"the environment is contradictory: {told}; unset the wrong variables, or call from_hosts(hosts, rank, port)")
    name, (rank, size) = next(iter(whole.items()))
    if name == "Slurm" and not ({"SLURM_STEP_ID", "SLURM_STEPID"} & given.keys()):
        raise ConfigError("SLURM_PROCID is set, but this process is not a task of srun: start the ranks with srun")
    if not 0 <= rank < size:
        raise ConfigError(f"{name} gives rank {rank} of {size}: ranks are numbered from 0 to size - 1")
    return rank, size, name


def _numbers(given: Mapping[str, str], rank: str, size: str) -> tuple[int, int]:
    try:
        return int(given[rank]), int(given[size])
    except ValueError as error:
        raise ConfigError(f"{rank}={given[rank]!r}, {size}={given[size]!r}: {error}; give whole numbers") from error


def _missing(given: Mapping[str, str]) -> str:
    """Returns the message for an unknown rank."""
    if "PMIX_RANK" in given:
        return "PMIX_RANK is set, but the number of ranks is unknown: set WORLD_SIZE and RANK, or call from_mpi4py(comm)"
    half = [name for _, rank, size in _PLACES for name in (rank, size) if name in given]
    if half:
        return f"{', '.join(half)} alone does not determine this process's rank: set RANK and WORLD_SIZE, or call from_hosts(hosts, rank, port)"
    return (
        "the rank of this process is unknown: start the ranks with torchrun, mpirun or srun, set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or "
        "call from_hosts(hosts, rank, port)"
    )


def _address(given: Mapping[str, str], source: str, size: int) -> str:
    if "MASTER_ADDR" in given:
        # [fd77::10] is fd77::10.
        return given["MASTER_ADDR"].strip().removeprefix("[").removesuffix("]")
    if source == "Open MPI" and given.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(size):
        return "127.0.0.1"
    nodes = given.get("SLURM_STEP_NODELIST")
    if source == "Slurm" and nodes and given.get("SLURM_DISTRIBUTION", "block") != "arbitrary":
        return _first_host(nodes)
    raise ConfigError(
        f"{source} does not give rank 0's host: set MASTER_ADDR to its name or address, or use an adapter that sends the id: from_mpi4py(comm), "
        "from_torch(), from_jax()"
    )


def _first_host(nodes: str) -> str:
    """Returns the first host of a Slurm node list: `a[03-05,9],b` begins with a03."""
    match = re.match(r"([^,\[\]\s]+)(?:\[(\d+)[\d,-]*\]([^,\[\]\s]*))?(?:,|$)", nodes)
    if match is None:
        raise ConfigError(f"SLURM_STEP_NODELIST={nodes!r} cannot be parsed; set MASTER_ADDR to rank 0's host")
    return "".join(part or "" for part in match.groups())


def _port(given: Mapping[str, str], source: str) -> int:
    for name in ("PROBE_SYNC_MASTER_PORT", "MASTER_PORT"):
        # Kubernetes tells of a service probe-sync-master by the first name.
        if "://" not in given.get(name, "://"):
            beside_store = name == "MASTER_PORT" and "TORCHELASTIC_RUN_ID" in given
            try:
                return int(given[name]) + beside_store
            except ValueError as error:
                raise ConfigError(f"{name}={given[name]!r}: {error}; give a port number") from error
    job = given.get("SLURM_JOB_ID", "")
    if source == "Slurm" and job.isdigit():
        # Above the ports that systems hand out. jax.distributed takes job % 4096 there, so we keep
        # away from that.
        return 61440 + (int(job) + 2048) % 4096
    raise ConfigError(
        f"{source} does not give rank 0's port: set PROBE_SYNC_MASTER_PORT to a port that is free on its host, the same on all ranks"
    )


def _known(key: str | bytes | None, given: Mapping[str, str]) -> bytes:
    """Returns the key by which the ranks recognise each other."""
    if key is not None:
        return key.encode() if isinstance(key, str) else key
    if "PROBE_SYNC_JOB" in given:
        return given["PROBE_SYNC_JOB"].encode()
    named = next(((name, given[name]) for name in _JOB_NAMES if name in given), ("nothing but the port", ""))
    return "=".join(named).encode()


def _agreed(host: str, rank: int, size: int, port: int, known: bytes, timeout: float) -> Group:
    if not 0 <= rank < size:
        raise ConfigError(f"rank={rank}, size={size}: ranks are numbered from 0 to size - 1")
    if not 0 < port < 65536:
        raise ConfigError(f"port={port}: give a number from 1 to 65535 that is free on rank 0's host, the same on all ranks")
    if rank == 0:
        # Its own name may lead to 127.0.1.1: it listens everywhere, except where only loopback is
        # meant.
        meeting = Meeting([host] if _is_loopback(host) else None, port=port, known=known)
        return Group(rank, size, meeting.unique_id, meeting)
    return Group(rank, size, agreed_id(_addresses(host, timeout), port=port, known=known))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _addresses(host: str, timeout: float) -> list[str]:
    """Returns the addresses of a host; retries, because a name service may know a host only once it is up."""
    end = time.monotonic() + timeout
    while True:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(entry[4][0]) for entry in found))
        except OSError as error:
            if time.monotonic() >= end:
                text = f"cannot resolve rank 0's host {host!r} ({error}); give its address"
                raise JoinError(text) from error
        time.sleep(_LOOK_AGAIN_S)


def _checked(carried: object, by: str) -> bytes:
    if not isinstance(carried, bytes) or len(carried) != 128:
        raise JoinError(f"{by} did not deliver rank 0's id; every rank must call the same adapter at the same point")
    return carried


_BY_HAND = "RANK/WORLD_SIZE"
# Whose variables, and their names for the rank and the number of ranks.
_PLACES = (
    (_BY_HAND, "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI", "PMI_RANK", "PMI_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
# Variables in which launchers name a job, equal on all its ranks.
_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_CARRY_MS = 300_000
_LOOK_AGAIN_S = 0.2
_jax_calls = 0
