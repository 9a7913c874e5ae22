"""Judges a broker as it was seen, by thresholds. Decides only: all that it goes by is passed in."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from broker.app.printable import printable
from broker.looking.census import HostTraffic
from broker.looking.checks_store import replicas, room, store
from broker.looking.checks_stream import lag, stream
from broker.looking.findings import Check, Finding, Gauge, Grade, Unit, Verdict, and_more
from broker.looking.hosts_view import silence
from broker.looking.message import nanoseconds
from broker.looking.sight import Status
from broker.looking.thresholds import Thresholds

__all__ = ["Reached", "Seen", "judge"]

_NAMED = 5  # hosts in one line


@dataclass(frozen=True, slots=True)
class Reached:
    """How the broker was reached: in how many seconds; when the certificate that it showed ends (RFC 3339, None without)."""

    connect_seconds: float
    rtt_seconds: float
    certificate_end: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the checks go by; None for what could not be learnt, and `trouble` then says why.

    `now` is this machine's time, which certificates are judged by; `rates` are messages a second of the hosts that send any.
    """

    now: datetime
    server: str
    reached: Reached | None = None
    status: Status | None = None
    hosts: Sequence[HostTraffic] | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    trouble: str = ""


def judge(checks: Iterable[Check], seen: Seen, limits: Thresholds) -> list[Verdict]:
    """Return a verdict for each check, in their order."""
    return [_verdict(check, seen, limits) for check in checks]


def _verdict(check: Check, seen: Seen, limits: Thresholds) -> Verdict:
    match check:
        case Check.CONNECTION:
            return _connection(seen, limits)
        case Check.HOSTS if seen.hosts is not None and seen.status is not None:
            return _hosts(seen.hosts, seen.rates, nanoseconds(seen.status.now), limits)
        case Check.CERTIFICATES if seen.reached is not None:
            return _certificates(seen, limits)
        case _ if seen.status is not None and check in _BY_STATUS:
            return _BY_STATUS[check](seen.status, limits)
        case Check.STREAM if seen.reached is not None and seen.trouble:
            # the server is there, and cannot or will not say: no stream, no leader, no majority
            return Verdict(check, (Finding(Grade.CRITICAL, seen.trouble),))
        case _:
            return Verdict(check, (Finding(Grade.UNKNOWN, seen.trouble or "was not learnt"),))


def _connection(seen: Seen, limits: Thresholds) -> Verdict:
    if seen.reached is None:
        return Verdict(Check.CONNECTION, (Finding(Grade.CRITICAL, seen.trouble),))
    connect, rtt = seen.reached.connect_seconds, seen.reached.rtt_seconds
    return Verdict(
        Check.CONNECTION,
        (
            Finding(limits.connect.grade(connect), f"connected to {seen.server} in {_ms(connect)}"),
            Finding(limits.rtt.grade(rtt), f"it answers in {_ms(rtt)}"),
        ),
        (
            Gauge("connect_seconds", connect, "Time to connect", Unit.SECONDS, limits.connect),
            Gauge("rtt_seconds", rtt, "Time for a word and its answer", Unit.SECONDS, limits.rtt),
        ),
    )


def _hosts(
    hosts: Sequence[HostTraffic], rates: Mapping[str, float], now: int, limits: Thresholds
) -> Verdict:
    by_silence = sorted(hosts, key=lambda host: host.last_seen)
    silences = {host.host: host.silent_for(now) for host in by_silence}
    bad = [
        Finding(grade, f"{host} has been silent for {silence(seconds)}")
        for host, seconds in silences.items()
        if (grade := limits.silent.grade(seconds)) is not Grade.OK
    ]
    sending = {one.host: 0.0 for one in hosts} | dict(rates)
    busiest = sorted(sending.items(), key=lambda one: -one[1])[:_NAMED]
    flooding = [
        Finding(grade, printable(f"{host} sends {rate:.0f} messages a second"))
        for host, rate in busiest
        if (grade := limits.rate.grade(rate)) is not Grade.OK
    ]
    longest = max(silences.values(), default=0.0)
    return Verdict(
        Check.HOSTS,
        (
            *flooding,
            *bad[:_NAMED],
            *and_more(bad[_NAMED:], "hosts"),
            Finding(Grade.OK, f"{len(hosts) - len(bad)} of {len(hosts)} hosts are heard of"),
        ),
        (
            Gauge("known", len(hosts), "Hosts whose lines the stream has"),
            Gauge("silent", len(bad), "Hosts that are silent for too long"),
            Gauge("longest_silence_seconds", longest, "Silence", Unit.SECONDS, limits.silent),
            *(
                Gauge(
                    *("messages_per_second", rate, "Messages a second of the busiest hosts"),
                    limit=limits.rate,
                    label="host",
                    of=host,
                )
                for host, rate in busiest
            ),
        ),
    )


def _certificates(seen: Seen, limits: Thresholds) -> Verdict:
    nodes = seen.status.nodes if seen.status is not None else ()
    ends = list(_ends_of(nodes))
    if seen.reached is not None and seen.reached.certificate_end is not None:
        ends.insert(0, (f"of {seen.server}", seen.reached.certificate_end))
    if not ends:
        return Verdict(Check.CERTIFICATES, absent="the line is not secured by certificates")
    left = {name: (datetime.fromisoformat(end) - seen.now).total_seconds() for name, end in ends}
    return Verdict(
        Check.CERTIFICATES,
        tuple(_validity(name, seconds, limits) for name, seconds in left.items()),
        tuple(
            Gauge("seconds_left", seconds, "Time left", Unit.SECONDS, label="certificate", of=name)
            for name, seconds in left.items()
        ),
    )


def _validity(name: str, seconds: float, limits: Thresholds) -> Finding:
    words = f"ends in {silence(seconds)}" if seconds > 0 else f"ended {silence(-seconds)} ago"
    return Finding(limits.validity.grade_of_rest(seconds), f"certificate {name} {words}")


def _ends_of(nodes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        told = node.get("certificates")
        for one in told if isinstance(told, list) else ():
            if isinstance(one, Mapping) and _is_time(end := one.get("not_after")):
                yield f"{one.get('path', '?')} on {node.get('name', '?')}", str(end)


def _is_time(text: object) -> bool:
    try:
        return datetime.fromisoformat(str(text)).tzinfo is not None
    except ValueError:
        return False


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


_BY_STATUS: dict[Check, Callable[[Status, Thresholds], Verdict]] = {
    Check.STREAM: stream,
    Check.LAG: lag,
    Check.STORE: store,
    Check.REPLICAS: replicas,
    Check.ROOM: room,
}
