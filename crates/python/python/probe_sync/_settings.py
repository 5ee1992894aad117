"""Converts Python values to the strings that settings and options are parsed from, so that a string means the same everywhere."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from typing import Union

from .errors import ConfigError

Path = Union[str, "os.PathLike[str]"]
Time = Union[str, float, datetime.timedelta]
"""A time: a string with a unit ("250ms"), a number of seconds, or a timedelta."""
Setting = Union[str, int, float, bool, "os.PathLike[str]", datetime.timedelta]


def text(value: Setting) -> str:
    """Returns the value of a setting as written on the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.timedelta):
        return time_text(value)
    return str(os.fspath(value)) if isinstance(value, os.PathLike) else str(value)


def time_text(value: Time) -> str:
    """Returns a time with its unit."""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime.timedelta):
        return f"{(value // datetime.timedelta(microseconds=1)) * 1000}ns"
    return f"{round(value * 1e9)}ns"


def settings(mapping: Mapping[str, Setting], keys: Mapping[str, Setting]) -> list[tuple[str, str]]:
    """Returns all settings as pairs of key and string; keywords come last and take precedence."""
    return [(key, text(value)) for table in (mapping, keys) for key, value in table.items()]


def paths(name: str, value: Path | Iterable[Path] | None) -> list[str]:
    """Returns one or several paths as a list; None gives an empty list."""
    if value is None:
        return []
    if isinstance(value, (str, os.PathLike)):
        return [os.fspath(value)]
    if isinstance(value, bytes):
        raise ConfigError(f"{name}: give paths as str or os.PathLike")
    return [os.fspath(path) for path in value]
