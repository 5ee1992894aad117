"""What can go wrong, one class for each thing that a user can do about it.

The texts are those of the command line, with keywords in place of flags.
"""

from __future__ import annotations


class Error(Exception):
    """Everything that probe_sync raises on purpose."""


class ConfigError(Error, ValueError):
    """A keyword or a setting is unusable, or two do not go together: change the call."""


class JoinError(Error):
    """The ranks did not come together, or were refused: look at the rank, the address or the key that the text names."""


class AlreadyStarted(Error, RuntimeError):
    """This process measures already: stop that session first, or use `probe_sync.current()`."""


class SessionEnded(Error, RuntimeError):
    """The session is over, or is another process's: start one."""


class SessionFailed(Error, RuntimeError):
    """The measurement broke off; finished rounds are on disk. The job can go on."""


class WaitTimeout(Error, TimeoutError):
    """What was waited for did not come in time; the session goes on."""


class BoundUnreachable(Error, ValueError):
    """The bound that was waited for is out of reach over these links; the text names the one that is not. The session goes on."""


class RefusedTrace(Error):
    """The traces do not fit what is known of the clocks: whose they are, when they were recorded, which clock they are on."""


class DamagedTrace(Error, ValueError):
    """A file is not what its format demands; the text names the byte or the line."""


class FileError(Error, OSError):
    """The system refused a file, another run has its place, or it did not reach rank 0."""


class MissingFile(FileError, FileNotFoundError):
    """A file or folder does not exist."""


class ClockError(Error):
    """The clock cannot say it: nothing is known yet, or the host's clock was set."""
