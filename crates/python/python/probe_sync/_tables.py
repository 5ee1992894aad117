"""Results as tables for pandas and Arrow, which are imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any


class Table:
    """Adds `to_pandas` and `__arrow_c_stream__` to a class that returns its columns from `_columns`."""

    def to_pandas(self) -> Any:
        """Returns the rows as a DataFrame; requires pandas."""
        return importlib.import_module("pandas").DataFrame(self._columns())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Exports the rows as an Arrow stream (for polars, duckdb and others); requires pyarrow."""
        return importlib.import_module("pyarrow").table(self._columns()).__arrow_c_stream__(requested_schema)

    def _columns(self) -> dict[str, Any]:
        raise NotImplementedError


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turns rows with the same keys into columns."""
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
