"""The exceptions of this package, one class for each way in which a caller can react.

The messages are those of the command line, with keywords instead of flags.
"""

from __future__ import annotations


class Error(Exception):
    """Base class of all errors raised by probe_sync."""


class ConfigError(Error, ValueError):
    """A keyword or setting is invalid, or two of them conflict: change the call."""


class JoinError(Error):
    """The ranks did not meet, or a rank was rejected: check the rank, address or key named in the message."""


class AlreadyStarted(Error, RuntimeError):
    """This process is already measuring: stop that session first, or use `probe_sync.current()`."""


class SessionEnded(Error, RuntimeError):
    """The session has ended or belongs to another process: start a new one."""


class SessionFailed(Error, RuntimeError):
    """The measurement failed. Completed rounds are on disk, and the job can continue."""


class WaitTimeout(Error, TimeoutError):
    """A wait timed out; the session continues."""


class BoundUnreachable(Error, ValueError):
    """The requested bound cannot be reached over these links; the message gives the one that can. The session continues."""


class RefusedTrace(Error):
    """The traces do not match the measured clocks: wrong node, time range or clock."""


class DamagedTrace(Error, ValueError):
    """A file does not conform to its format; the message gives the byte or line."""


class FileError(Error, OSError):
    """A file could not be read or written, belongs to another run, or did not reach rank 0."""


class MissingFile(FileError, FileNotFoundError):
    """A file or folder does not exist."""


class ClockError(Error):
    """The time is unavailable: it is not known yet, or the host's clock was set."""
