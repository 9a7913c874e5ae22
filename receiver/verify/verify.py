"""`logreceiver verify`: compares received files with the stream, partition by partition, as far as their stores have received."""

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.progress import progress
from broker.app.selection import LineSelection
from broker.app.units import format_size
from broker.app.untrusted import printable
from broker.client.connection import Connection
from receiver.replay.reading import (
    LineReader,
    ReplaySpan,
    StreamSpan,
    find_span,
    hosts_that_moved,
    moment_of,
)
from receiver.settings import VerifySettings
from receiver.status.status import ask
from receiver.storage.position import Damaged
from receiver.storage.store import Store, path_of
from receiver.verify.comparison import (
    ComparedFile,
    ComparedPartition,
    Comparison,
    ComparisonSettings,
    snapshot,
)

__all__ = ["VerifyReport", "verify"]

_MOST_NAMED = 5  # hosts


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All partitions that were compared; `unclaimed` are those of which nothing was received into these folders yet.

    `moved` are the hosts in more than one partition.
    """

    compared: tuple[ComparedPartition, ...]
    unclaimed: tuple[int, ...]
    moved: frozenset[str] = frozenset()

    @property
    def is_well(self) -> bool:
        """Whether every expected line is in its place, or was removed to make room."""
        return not any(report.difference for report in self.files)

    @property
    def hosts(self) -> int:
        """How many hosts were compared."""
        return sum(one.hosts for one in self.compared)

    @property
    def files(self) -> list[ComparedFile]:
        """The files that differ, or of which only the newest lines are kept."""
        return [report for one in self.compared for report in one.files]

    def as_json(self) -> str:
        """Write it for programs: sizes in bytes, files that differ or hold less than the stream."""
        document = {
            "well": self.is_well,
            "hosts_compared": self.hosts,
            "bytes": sum(one.size for one in self.compared),
            "set_aside": sum(one.refused for one in self.compared),
            "unclaimed": self.unclaimed,
            "moved": sorted(self.moved),
            "files": [asdict(report) for report in self.files],
        }
        return json.dumps(document, indent=2)

    def as_text(self) -> str:
        """Write it for people: a line for each file that differs, and one for everything."""
        lines = [line for report in self.files for line in _of_file(report)]
        size = format_size(sum(one.size for one in self.compared))
        verdict = "all well" if self.is_well else "DIFFERENCES"
        lines.append(
            f"{verdict}: {self.hosts} hosts, {size} compared"
            if self.hosts
            else "nothing was compared"
        )
        if self.unclaimed:
            numbers = ", ".join(map(str, self.unclaimed))
            lines.append(
                f"not compared, as nothing of them was received here yet: partitions {numbers}"
            )
        if self.moved:
            hosts_left_out = ", ".join(sorted(self.moved)[:_MOST_NAMED])
            lines.append(
                "not compared, as the stream has their lines in more than one partition: "
                f"{len(self.moved)} hosts, such as {hosts_left_out}"
            )
        return "\n".join(map(printable, lines))


def _of_file(report: ComparedFile) -> list[str]:
    lines = []
    if report.difference:
        lines.append(
            f"{report.live}: {report.expected} lines are expected, {report.received} are there; the first difference is in "
            f"{report.difference}"
        )
    if report.pruned:
        lines.append(f"{report.live}: pruned: the oldest {report.pruned} bytes are no longer kept")
    return lines


@dataclass(frozen=True, slots=True)
class _Found:
    span: ReplaySpan
    created: dict[str, str]  # by stream
    moved: frozenset[str]


def verify(settings: VerifySettings) -> VerifyReport:
    """Compare and return what was found; raises OperatorError kinds, click.UsageError. Changes nothing anywhere."""
    output = settings.output.absolute()
    if not output.is_dir():
        raise ConfigurationError(f"there is no folder {output}; give the receiver's --output")
    found = _asked(settings)
    try:
        return _compared(settings, found, output)
    except Damaged as error:
        raise OperatorError(str(error)) from None
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; run this as the receiver's user, where its folders are"
        ) from None


def _compared(settings: VerifySettings, found: _Found, output: Path) -> VerifyReport:
    reader = LineReader(settings.server, settings.access, LineSelection(settings.host))
    wanted = ComparisonSettings(
        output, reader, settings.path_template, settings.time_zone, found.moved
    )
    with ExitStack() as stack:
        begun = {
            number: comparison
            for number in found.span.partitions
            if (comparison := _opened(settings, found, wanted, number, stack)) is not None
        }
        size = found.span.length * len(begun) // len(found.span.streams)
        advance = stack.enter_context(progress("comparing", size))
        compared = tuple(comparison.run(advance) for comparison in begun.values())
    unclaimed = tuple(sorted(set(found.span.partitions) - set(begun)))
    return VerifyReport(compared, unclaimed, found.moved)


def _opened(
    settings: VerifySettings,
    found: _Found,
    wanted: ComparisonSettings,
    partition: int,
    stack: ExitStack,
) -> Comparison | None:
    """Open the store of a partition; None where nothing was received of it into these folders."""
    try:
        store = stack.enter_context(Store(path_of(settings.state.absolute(), partition)))
    except FileNotFoundError:
        return None
    seen = snapshot(store)
    if seen is None:
        return None
    span = _stream_of(found.span, partition)
    if seen.created not in {"", found.created[span.stream]}:
        raise ConfigurationError(
            f"partition {partition}: its files come from the stream of {seen.created}, this one is of "
            f"{found.created[span.stream]}: there is nothing to compare them with"
        )
    return Comparison(wanted, partition, store, span)


def _stream_of(span: ReplaySpan, partition: int) -> StreamSpan:
    return span.streams[partition % len(span.streams)]


def _asked(settings: VerifySettings) -> _Found:
    now = datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
    since = moment_of("since", settings.since, now, settings.time_zone)
    numbers = None if settings.numbers is None else tuple(settings.numbers)

    async def found(connection: Connection) -> _Found:
        span = await find_span(connection, numbers, since)
        created = {
            one.stream: (await connection.api(f"STREAM.INFO.{one.stream}"))["created"]
            for one in span.streams
        }
        return _Found(span, created, await hosts_that_moved(connection, created))

    return ask(settings, "logreceiver verify", found)
