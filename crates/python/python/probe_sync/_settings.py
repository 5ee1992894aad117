"""Python values as the texts that settings and options are read from, so that one text means the same everywhere."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from typing import Union

from .errors import ConfigError

Path = Union[str, "os.PathLike[str]"]
Time = Union[str, float, datetime.timedelta]
"""A time: text with a unit ("250ms"), seconds, or a timedelta."""
Setting = Union[str, int, float, bool, "os.PathLike[str]", datetime.timedelta]


def text(value: Setting) -> str:
    """The value of a setting as on the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.timedelta):
        return time_text(value)
    return str(os.fspath(value)) if isinstance(value, os.PathLike) else str(value)


def time_text(value: Time) -> str:
    """A time with its unit."""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime.timedelta):
        return f"{(value // datetime.timedelta(microseconds=1)) * 1000}ns"
    return f"{round(value * 1e9)}ns"


def settings(mapping: Mapping[str, Setting], keys: Mapping[str, Setting]) -> list[tuple[str, str]]:
    """Both as key and text, the keywords last: they win."""
    return [(key, text(value)) for table in (mapping, keys) for key, value in table.items()]


def paths(name: str, value: Path | Iterable[Path] | None) -> list[str]:
    """A path, or several; None for none."""
    if value is None:
        return []
    if isinstance(value, (str, os.PathLike)):
        return [os.fspath(value)]
    if isinstance(value, bytes):
        raise ConfigError(f"{name}: give paths as str or os.PathLike")
    return [os.fspath(path) for path in value]
