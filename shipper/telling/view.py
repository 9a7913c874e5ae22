"""What a running agent looks like from outside: put together when somebody asks, and only then.

Reads what the rooms of the agent know and changes nothing; the wiring says which of them are at work.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from broker.app.sizes import format_size
from broker.client.connection import Connection
from shipper.crew import Crew
from shipper.filestate import FileState
from shipper.following.follower import Follower
from shipper.publishing.waiting import Waiting
from shipper.shipping import Shipping
from shipper.spool import PATH, Spool
from shipper.telling.health import Vitals
from shipper.telling.meter import Meter
from shipper.telling.report import FileReport, HostReport, Trouble, behind, reason_for

__all__ = ["View", "rfc3339"]

_HUNG = 60.0  # seconds
_SECOND = 1_000_000_000


class View:
    """One agent; `crew`, `source` and `shipping` are None while it starts, `spool` where standard input is not read."""

    def __init__(
        self,
        host: str,
        connection: Connection,
        waiting: Waiting,
        meter: Meter,
        clock: Callable[[], int],
    ) -> None:
        """Look at what is there from the start on; `clock` is nanoseconds since the epoch."""
        self.meter = meter
        self.waiting = waiting
        self.crew: Crew | None = None
        self.source: Follower | None = None
        self.shipping: Shipping | None = None
        self.spool: Spool | None = None
        self._host = host
        self._connection = connection
        self._clock = clock

    def at_work(self, crew: Crew, source: Follower, shipping: Shipping) -> None:
        """Take note of what works from now on."""
        self.crew, self.source, self.shipping = crew, source, shipping

    def at_rest(self) -> None:
        """Take note that nothing works now, until the subject is claimed again."""
        self.crew = self.source = self.shipping = None

    @property
    def is_following(self) -> bool:
        """Whether the subject is claimed, the positions are rebuilt and the first look is done."""
        return self.shipping is not None and self.shipping.has_looked

    @property
    def waiting_for(self) -> str:
        """What the agent waits for, empty while all goes well."""
        return self._connection.away or self.waiting.reason

    @property
    def is_ready(self) -> bool:
        """Whether the start is over, or waits for the broker."""
        return self.is_following or bool(self.waiting_for)

    def news(self) -> object:
        """Return what compares equal as long as the status reads the same; None when that cannot be known."""
        # while nothing is shipped and nothing is waited for, nothing changes that is worth adding up all files
        return None if self.waiting_for or not self.is_following else self.meter.rounds

    def is_moving(self, most: float) -> bool:
        """Whether no look and no reading has been under way for more than `most` seconds."""
        since = None if self.shipping is None else self.shipping.reading_since
        return since is None or asyncio.get_running_loop().time() - since < most

    def vitals(self) -> Vitals:
        """Return what tells whether the agent is well."""
        read = min(self.meter.unacknowledged().values(), default=None)
        return Vitals(
            is_moving=self.is_moving(_HUNG),
            is_following=self.is_following,
            waiting_for=self.waiting_for,
            unacknowledged=None if read is None else self._ago(read),
            trouble=self._trouble,
        )

    def status(self) -> str:
        """Return one line on how it goes."""
        waiting = f"waiting for the broker: {self.waiting_for}" if self.waiting_for else ""
        if self.source is None or self.shipping is None:
            return waiting or "reading back the positions"
        states = self._states()
        total = sum(behind(state, self._position(state)) for state in states)
        count = f"{len(states)} file{'' if len(states) == 1 else 's'}"
        line = f"{count}, {format_size(total)} behind"
        return ", ".join(filter(None, [line, waiting, self._trouble]))

    def report(self) -> HostReport:
        """Return the whole of it."""
        positions = None if self.shipping is None else self.shipping.positions
        unacknowledged = self.meter.unacknowledged()
        troubles = [] if self.source is None else self.source.troubles()
        shown = [Trouble(trouble.path, trouble.text) for trouble in troubles]
        shown += [Trouble(PATH, self._trouble)] if self._trouble else []
        return HostReport(
            host=self._host,
            agent="" if self.crew is None else str(self.crew.agent),
            sequence=0 if positions is None else positions.sequence,
            running=True,
            files=tuple(
                self._file(state, unacknowledged.get(state.file)) for state in self._states()
            ),
            pid=os.getpid(),
            up_since=rfc3339(self.meter.since),
            last_ack=None if self.meter.last_ack is None else rfc3339(self.meter.last_ack),
            waiting_for=self.waiting_for,
            lost_bytes=dict(self.meter.lost),
            troubles=tuple(shown),
            passed_over=() if self.source is None else tuple(self.source.passed_over()),
        )

    @property
    def _trouble(self) -> str:
        return "" if self.spool is None else self.spool.trouble

    def _states(self) -> list[FileState]:
        states = [] if self.source is None else self.source.states()
        if self.spool is None:
            return states
        return [replace(state, size=state.size + self.spool.ahead) for state in states]

    def _file(self, state: FileState, read: int | None) -> FileReport:
        position = self._position(state)
        known = [since for since in (state.since, read) if since is not None]
        size, lines = self.meter.rate(state.file)
        return FileReport(
            path=state.path,
            file=state.file,
            state=state.stage.value,
            reason=reason_for(state, position, self.waiting_for),
            size_bytes=state.size,
            position_bytes=position,
            behind_bytes=behind(state, position),
            oldest_unshipped_seconds=self._ago(min(known)) if known else None,
            bytes_per_second=round(size, 1),
            lines_per_second=round(lines, 1),
            last_read=rfc3339(state.seen) if state.seen else None,
        )

    def _position(self, state: FileState) -> int:
        return 0 if self.shipping is None else self.shipping.position(state.file)

    def _ago(self, moment: int) -> float:
        return round(max(0, self._clock() - moment) / _SECOND, 3)


def rfc3339(nanoseconds: int) -> str:
    """Write a moment in UTC, to the second."""
    moment = datetime.fromtimestamp(nanoseconds // _SECOND, UTC)
    return moment.isoformat().replace("+00:00", "Z")
