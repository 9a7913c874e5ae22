"""Judges where the stream is kept: how full the store is, what retention does there, and which servers have it. Decides only."""

from collections.abc import Iterator, Mapping
from typing import Any

from broker.app.sizes import format_size
from broker.looking.findings import Check, Finding, Gauge, Grade, Unit, Verdict
from broker.looking.hosts_view import silence
from broker.looking.sight import Replica, Status
from broker.looking.thresholds import Thresholds

__all__ = ["replicas", "room", "store"]

_NO_REPORT = "nobody tells: not a logbroker, or this user may not ask it"


def store(status: Status, limits: Thresholds) -> Verdict:
    """Judge how full the store is, and whether it takes anything."""
    shares = list(_shares(status))
    worst = max((share for _, share in shares), default=0.0)
    # where received messages are purged for new ones a store is full by and by, and that is fine
    waiting = _waiting_share(status) if _has_retention(status) else 1.0
    grade = limits.store.grade(worst * waiting)
    told = ", ".join(f"{name} {share:.0f} %" for name, share in shares) or "no limits"
    if waiting < 1.0:
        told += f", {waiting:.0%} of it unreceived"
    return Verdict(
        Check.STORE,
        (
            *(finding for node in status.nodes for finding in _disk(node)),
            Finding(grade, f"used: {told}"),
        ),
        (
            Gauge("used_percent", worst * waiting, "Used", Unit.PERCENT, limits.store),
            Gauge("used_bytes", status.store_used, "Bytes in the store", Unit.BYTES),
        ),
    )


def _disk(node: Mapping[str, Any]) -> Iterator[Finding]:
    name, free, reserve = node.get("name", "?"), node.get("free"), node.get("reserve")
    if frozen := node.get("frozen"):
        yield Finding(Grade.CRITICAL, f"{name} takes no more: {frozen}")
    if isinstance(free, int) and isinstance(reserve, int) and free < reserve:
        told = f"{format_size(free)} of its disk free, {format_size(reserve)} should stay"
        yield Finding(Grade.WARNING, f"{name} has {told}")


def _shares(status: Status) -> Iterator[tuple[str, float]]:
    bounds = (
        ("of the stream's bytes", status.bytes, status.max_bytes),
        ("of its messages", status.messages, status.max_messages),
        ("of the store", status.store_used, status.store_limit),
    )
    for name, used, bound in bounds:
        if bound:
            yield name, 100.0 * used / bound


def _has_retention(status: Status) -> bool:
    return any(isinstance(node.get("retention"), Mapping) for node in status.nodes)


def _waiting_share(status: Status) -> float:
    waiting = sum(one.pending or 0 for one in status.partitions)
    return min(1.0, waiting / status.messages) if status.messages else 0.0


def replicas(status: Status, limits: Thresholds) -> Verdict:
    """Judge how many servers hold all of the stream; one that lags does not count."""
    wanted = status.wanted_replicas if limits.peer_expect is None else limits.peer_expect
    good = [one for one in status.replicas if _counts(one, limits)]
    findings = [_behind(one) for one in status.replicas if one not in good]
    if not any(one.leader for one in status.replicas):
        findings.insert(0, Finding(Grade.CRITICAL, "the stream has no leader: nothing is stored"))
    if len(good) < wanted:
        grade = Grade.CRITICAL if 2 * len(good) <= wanted else Grade.WARNING
        findings.insert(
            0, Finding(grade, f"{len(good)} of {wanted} servers hold all of the stream")
        )
    else:
        findings.append(Finding(Grade.OK, f"{len(good)} of {wanted} servers hold the stream"))
    return Verdict(
        Check.REPLICAS,
        tuple(findings),
        (
            Gauge("current", len(good), "Servers that hold all of the stream"),
            Gauge("wanted", wanted, "Servers that should"),
            *(
                Gauge("lag", one.lag, "Operations behind", label="server", of=one.name)
                for one in status.replicas
            ),
        ),
    )


def _counts(one: Replica, limits: Thresholds) -> bool:
    is_near = one.lag < limits.peer_lag and one.seen_seconds < limits.peer_seen
    return one.leader or (one.current and not one.offline and is_near)


def _behind(one: Replica) -> Finding:
    if one.offline:
        text = f"{one.name} is offline, last seen {silence(one.seen_seconds)} ago"
    else:
        text = (
            f"{one.name} is {one.lag} operations behind, last seen {silence(one.seen_seconds)} ago"
        )
    return Finding(Grade.WARNING, text)


def room(status: Status, limits: Thresholds) -> Verdict:
    """Judge what retention does while space is short; absent where no logbroker tells."""
    spaces = [
        (f"{node.get('name', '?')}, {name}", space)
        for node in status.nodes
        if isinstance(told := node.get("retention"), Mapping)
        for name, space in told.items()
        if isinstance(space, Mapping)
    ]
    if not any(isinstance(node.get("retention"), Mapping) for node in status.nodes):
        return Verdict(Check.ROOM, absent=_NO_REPORT)
    findings = [finding for name, space in spaces for finding in _about_space(name, space)]
    names = ("purged_messages", "purged_bytes")
    return Verdict(
        Check.ROOM,
        tuple(findings) or (Finding(Grade.OK, "there is space"),),
        tuple(
            Gauge(name, sum(_count(space.get(name)) for _, space in spaces), "By retention")
            for name in names
        ),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _about_space(name: str, space: Mapping[str, Any]) -> Iterator[Finding]:
    state, since, needed = space.get("state"), space.get("since"), space.get("needed_by")
    if state == "purging":
        yield Finding(
            Grade.OK, f"{name}: what every receiver has committed is purged since {since}"
        )
    elif state != "ok":
        named = " and ".join(map(str, needed)) if isinstance(needed, list) else "a receiver"
        yield Finding(
            Grade.CRITICAL, f"{name} is full since {since}, {state}: {named} needs its oldest lines"
        )
