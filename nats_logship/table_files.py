"""The files of a table's newest version: what their statistics say, and DuckDB's view of them.

delta-rs reads the log. DuckDB reads files of a folder by itself, and those of an object store
through pyarrow with delta-rs' own access, so that it loads no extension.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.text import flatten_error

_GLOB = re.compile(r"[*?\[]")
_OF_STORE = re.compile(r"Generic \w+ error|lacked the necessary privileges|not authenticated")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_LAST = "\U0010ffff"  # above all letters
_FILES = f"""
WITH bounds AS (
  SELECT unnest(NULL::STRUCT("min.time" TIMESTAMPTZ, "max.time" TIMESTAMPTZ, "min.host" TEXT,
    "max.host" TEXT, "min.stream" TEXT, "max.stream" TEXT, "min.sequence" INT8,
    "max.sequence" INT8)) WHERE false
  UNION ALL BY NAME FROM actions)
SELECT path, size_bytes, coalesce(epoch_us("min.time"), 0),
  epoch_us(coalesce("max.time", TIMESTAMPTZ '9999-12-31')) // 1000 * 1000 + 999,
  coalesce("min.host", ''), coalesce("max.host", '{_LAST}'),
  coalesce("min.stream", ''), coalesce("max.stream", '{_LAST}'),
  coalesce("min.sequence", 0), coalesce("max.sequence", {2**63 - 1})
FROM bounds
"""
"""Bounds of other programs' files may be unknown, and their times are cut to milliseconds."""
_IS_LINE = " AND ".join(
    f"{name} IS NOT NULL" for name in ("time", "host", "stream", "sequence", "pos")
)
"""Rows of other programs may lack what every line has."""


class TableFile(NamedTuple):
    """A file, and the least and largest values in it; times in microseconds, both included."""

    path: str
    size: int
    begins: int
    ends: int
    hosts: tuple[str, str]
    streams: tuple[str, str]
    sequences: tuple[int, int]

    def may_have_host(self, globs: Sequence[str]) -> bool:
        """Whether a host that one of the globs matches may be in it; no globs match any host."""
        low, high = self.hosts
        prefixes = [_GLOB.split(glob, maxsplit=1)[0] for glob in globs] or [""]
        return any(low <= prefix + _LAST and prefix <= high for prefix in prefixes)


def explain(error: BaseException) -> str:
    """Return an error of delta-rs in one line, with what to check if an object store refuses."""
    reason = flatten_error(str(error))
    if not _OF_STORE.search(str(error)):
        return reason
    what = "the address, the region and the keys of the object store (--storage-option, or AWS_…)"
    return f"{reason}; check {what}"


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table: delta-rs' handle of its lines in `root`, and their files."""

    root: str
    table: Any
    options: Mapping[str, str]
    files: tuple[TableFile, ...]

    @classmethod
    def read(cls, address: str, options: Mapping[str, str]) -> "TableVersion":
        """Read the newest version; raises `ConfigurationError`, `OperatorError`."""
        require_libraries()
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        root = f"{address.removeprefix('file://').rstrip('/')}/lines"
        if "://" not in root and not Path(root).is_dir():
            raise OperatorError(f"there is no table in {address}; check --table")
        if "://" not in root and (escape := _ESCAPE.search(str(Path(root).absolute()))):
            raise OperatorError(
                f"cannot read the table {address}: {escape[0]} in the name of a folder is another "
                "letter for delta-rs; rename the folder"
            )
        try:
            table = DeltaTable(root, storage_options=dict(options))
            return cls(root, table, options, tuple(_list_files(table)))
        except (DeltaError, OSError, ValueError) as error:
            raise OperatorError(f"cannot read the table {address}: {explain(error)}") from None

    def transaction(self, stream: str, created: str) -> int | None:
        """Return the first sequence of a stream that is not in it; None if none of them is."""
        found: int | None = self.table.transaction_version(f"logship/{stream}/{created}")
        return found

    def show(self, database: Any, name: str, files: Iterable[TableFile]) -> None:
        """Have a view of a connection of DuckDB be the rows of some files, at least one."""
        paths, rows = [one.path for one in files], f"stored_{name}"
        if "://" not in self.root and not _GLOB.search(self.root):
            names = (f"{self.root}/{path}".replace("'", "''") for path in paths)
            rows = "read_parquet([" + ", ".join(f"'{name}'" for name in names) + "])"
        else:
            import pyarrow.dataset as datasets
            from deltalake.fs import DeltaStorageHandler
            from pyarrow.fs import PyFileSystem

            stored = PyFileSystem(DeltaStorageHandler(self.table.table_uri, dict(self.options)))
            database.register(rows, datasets.dataset(paths, format="parquet", filesystem=stored))
        database.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {rows} WHERE {_IS_LINE}")


def require_libraries() -> None:
    """Raise `ConfigurationError` if packages of the extra `table` are missing."""
    try:
        import deltalake  # noqa: F401 - an extra
        import duckdb  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is missing: install nats-logship[table]") from None


def _list_files(table: Any) -> Iterator[TableFile]:
    import duckdb

    actions = table.get_add_actions(flatten=True)
    if not actions.num_rows:
        return
    with duckdb.connect() as database:  # it reads Arrow without pyarrow, which takes 0.1 s to load
        database.register("actions", actions)
        for path, size, begins, ends, *names, first, last in database.execute(_FILES).fetchall():
            hosts, streams = (names[0], names[1]), (names[2], names[3])
            yield TableFile(path, size, begins, ends, hosts, streams, (first, last))
