"""Rounds through the store of a launcher: `over_torch` and `over_jax`.

Every rank has a queue of numbered keys in the store. A sender increments the queue's counter and sets the key of that number; the rank that owns the
queue waits for the next number, takes it and deletes it. Two threads per process do this, so that neither the training loop nor the
session's thread waits for the store.
"""

from __future__ import annotations

import datetime
import importlib
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ._native import Messages
from .errors import ConfigError
from .launch import Group, broadcast_by_torch, jax_processes, torch_ranks

if TYPE_CHECKING:
    # Without torch installed, type checkers treat its groups as Any.
    from torch.distributed import ProcessGroup  # type: ignore[import-not-found, unused-ignore]


class _Store(Protocol):
    """A key-value store that all ranks share; two threads call it."""

    def increment(self, key: str) -> int:
        """Adds 1 to a counter that begins at 0, and returns it."""

    def put(self, key: str, value: bytes) -> None: ...

    def take(self, key: str, timeout_s: float) -> bytes | None:
        """Waits for a key, deletes it and returns its value; None after the timeout."""


def over_torch(group: ProcessGroup | None = None) -> Group:
    """Returns the ranks of `torch.distributed` in `group` (default: all ranks); the rounds of their session run through torch's own store.

    No further port is opened for messages; probe packets still use UDP. Every rank of the group must call it. If a rank is lost, the session ends.
    """
    distributed, rank, size = torch_ranks("over_torch", group)
    prefix = broadcast_by_torch(distributed, group, f"probe_sync/{secrets.token_hex(8)}" if rank == 0 else None)
    store = importlib.import_module("torch.distributed.distributed_c10d")._get_default_store()
    return _carry(rank, size, str(prefix), _TorchStore(store))


def over_jax() -> Group:
    """Returns the processes of `jax.distributed`; the rounds of their session run through its key-value store.

    No further port is opened for messages; probe packets still use UDP. Every process must call it the same number of times. If a process is lost, the
    session ends.
    """
    client, rank, size = jax_processes("over_jax")
    missing = [name for name in ("key_value_increment", "key_value_set_bytes") if not hasattr(client, name)]
    if missing:
        raise ConfigError(f"over_jax: this jaxlib has no {missing[0]}; install a newer one, or use from_jax()")
    global _jax_calls
    _jax_calls += 1
    return _carry(rank, size, f"probe_sync/over/{_jax_calls}", _JaxStore(client))


class _TorchStore:
    """A store of torch.distributed."""

    def __init__(self, store: Any) -> None:
        # A client serves one call at a time: neither may the job's waits delay our messages, nor ours the job.
        try:
            self._store, self._waiting = store.clone(), store.clone()
        except (AttributeError, RuntimeError):
            self._store, self._waiting = store, None

    def increment(self, key: str) -> int:
        return int(self._store.add(key, 1))

    def put(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def take(self, key: str, timeout_s: float) -> bytes | None:
        store = self._waiting or self._store
        if self._waiting is None:
            if not store.check([key]):
                threading.Event().wait(_LOOK_AGAIN_S)
                return None
        else:
            try:
                store.wait([key], datetime.timedelta(seconds=timeout_s))
            except RuntimeError:
                if not store.check([key]):
                    return None
        value = bytes(store.get(key))
        store.delete_key(key)
        return value


class _JaxStore:
    """The client of JAX's coordination service."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def increment(self, key: str) -> int:
        return int(self._client.key_value_increment(key, 1))

    def put(self, key: str, value: bytes) -> None:
        self._client.key_value_set_bytes(key, value)

    def take(self, key: str, timeout_s: float) -> bytes | None:
        try:
            value = bytes(self._client.blocking_key_value_get_bytes(key, round(timeout_s * 1000)))
        except Exception as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise
        self._client.key_value_delete(key)
        return value


def _carry(rank: int, size: int, prefix: str, store: _Store) -> Group:
    """Starts the threads of a group that lives in this part of a store."""
    messages = Messages(rank, size)
    group = Group(rank, size, b"", messages=messages)
    # A group that is given to no session ends its threads.
    weakref.finalize(group, messages.close_unused)
    for name, part in (("send", _send), ("receive", _receive)):
        thread = threading.Thread(target=_guarded, args=(part, messages, rank, prefix, store), name=f"probe_sync-{name}", daemon=True)
        thread.start()
        _running[:] = [(other, queues) for other, queues in _running if other.is_alive()]
        _running.append((thread, messages))
    return group


def end_all() -> None:
    """At exit, after the session was asked to end: waits for its last messages and ends the threads.

    A thread must not come back from a wait when the interpreter is gone. One whose store does not answer is left to the end of the process.
    """
    end = time.monotonic() + _EXIT_S
    for thread, _ in _running:
        thread.join(max(0.0, end - time.monotonic()))
    for thread, messages in _running:
        messages.close()
        thread.join(_EXIT_S)


def _after_fork() -> None:
    """A forked child has no threads, and must not touch their queues."""
    _running.clear()


def _guarded(part: Callable[[Messages, int, str, _Store], None], messages: Messages, rank: int, prefix: str, store: _Store) -> None:
    try:
        part(messages, rank, prefix, store)
    except Exception as error:
        messages.fail(f"the store failed: {type(error).__name__}: {error}")


def _send(messages: Messages, rank: int, prefix: str, store: _Store) -> None:
    while (message := messages.take()) is not None:
        to, data = message
        _put(store, f"{prefix}/{to}", rank.to_bytes(4, "little") + data)
    # Wakes this process's other thread.
    _put(store, f"{prefix}/{rank}", b"")


def _put(store: _Store, queue: str, value: bytes) -> None:
    store.put(f"{queue}/{store.increment(queue)}", value)


def _receive(messages: Messages, rank: int, prefix: str, store: _Store) -> None:
    number = 1
    while True:
        value = store.take(f"{prefix}/{rank}/{number}", _SLICE_S)
        if value is None:
            if messages.is_closed():
                return
            continue
        number += 1
        if not value:
            return
        messages.deliver(int.from_bytes(value[:4], "little"), value[4:])


_jax_calls = 0
# Threads of this process, with their queues.
_running: list[tuple[threading.Thread, Messages]] = []

os.register_at_fork(after_in_child=_after_fork)

# Longest wait in the store, after which the end of the session is noticed in any case.
_SLICE_S = 10.0
# Longest waits at exit: for the session's last messages, and for each thread.
_EXIT_S = 1.0
# Time between two looks into a store of torch that cannot be cloned.
_LOOK_AGAIN_S = 0.05
