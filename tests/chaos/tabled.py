"""The table of a world, which `logreceiver table` writes: how far it is, and what it has."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from nats_logship.client.connection import Connection
from nats_logship.client.stream_state import StreamState, get_stream_state
from nats_logship.wire.streams import STREAM
from receiver.table.plan import transaction_name
from tests.support.oracle import Verdict, judge

if TYPE_CHECKING:
    from tests.chaos.world import World

_COLUMNS = "file, line, raw, piece"
_ORDER = ("stream", "sequence", "pos")
Row = tuple[Any, ...]


def reached(world: "World") -> Iterator[bool]:
    """Say again and again whether the table has what the stream has by now."""

    async def ask(connection: Connection) -> StreamState:
        return await get_stream_state(connection, STREAM)

    state = world.ask(ask)
    while True:
        yield _written_until(world.table_folder / "lines", state) >= state.until


def _written_until(lines: Path, state: StreamState) -> int:
    """Return the first sequence of a stream that the table does not have, by its newest commit."""
    try:
        name = transaction_name(state.name, state.created)
        return DeltaTable(str(lines)).transaction_version(name) or 0
    except (DeltaError, OSError):  # it is not there yet
        return 0


def judged(world: "World") -> tuple[dict[str, Verdict], list[str]]:
    """Return a verdict on the lines of each host in the table, and all findings.

    Its writer has ended. DuckDB and Polars read each host, and have to read the same rows.
    """
    verdicts, findings = dict[str, Verdict](), list[str]()
    folder = world.table_folder
    table = DeltaTable(str(folder / "lines"))
    rows = table.to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    query = f"SELECT {_COLUMNS} FROM rows WHERE host = ? ORDER BY {', '.join(_ORDER)}"
    scanned = polars.scan_delta(table).sort(*_ORDER)
    for host in world.hosts:
        by_duckdb = duckdb.execute(query, [host.name]).fetchall()
        own = scanned.filter(polars.col("host") == host.name).select(*_COLUMNS.split(", "))
        if own.collect().rows() != by_duckdb:
            findings.append(f"{host.name}: DuckDB and Polars read other rows of the table")
        verdict = judge(host.sources(world.received.lost(host.name)), join(by_duckdb))
        verdicts[host.name] = verdict
        if not verdict.is_perfect:
            findings.append(f"{host.name}: in the table: {verdict}")
    gaps = DeltaTable(str(folder / "gaps")).to_pyarrow_table().to_pylist()
    findings += [f"a row of gaps, and nothing was lost: {gap}" for gap in gaps]
    return verdicts, findings


def join(rows: Iterable[Row]) -> bytes:
    """Return the lines of a host's rows, each where it ends.

    A piece waits for the rest of its line, which is the next row of its file.
    """
    done, begun = list[bytes](), dict[str, bytes]()
    for file, line, raw, is_piece in rows:
        data = begun.pop(file, b"") + (line.encode() if raw is None else raw)
        if is_piece:
            begun[file] = data
        else:
            done.append(data + b"\n")
    return b"".join((*done, *(data + b"\n" for data in begun.values())))
