"""What is judged to be wrong, from where on. Cores only."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from broker.looking.census import Census
from broker.looking.checks import Reached, Seen, judge
from broker.looking.findings import Check, Grade, Limit, Verdict, overall
from broker.looking.message import nanoseconds
from broker.looking.sight import Replica, Status, Strays
from broker.looking.thresholds import Thresholds
from tests.broker.looking.conftest import without_payload
from tests.broker.looking.test_sight import NOW, seen

_TIME = datetime(2026, 11, 21, 16, tzinfo=UTC)


def _judged(
    check: Check,
    status: Status | None = None,
    limits: Thresholds = Thresholds(),  # noqa: B008 - a frozen value
    **known: Any,
) -> Verdict:
    known = {"reached": Reached(0.01, 0.001), **known}
    (verdict,) = judge([check], Seen(_TIME, "nats://b:4222", status=status, **known), limits)
    return verdict


@pytest.mark.parametrize(
    ("value", "grade"),
    [(0, Grade.OK), (9.9, Grade.OK), (10, Grade.WARNING), (20, Grade.CRITICAL)],
)
def test_a_limit_counts_from_its_value_on(value: float, grade: Grade) -> None:
    assert Limit(10, 20).grade(value) is grade
    assert Limit().grade(value) is Grade.OK
    assert Limit(20, 10).grade_of_rest(20 + 10 - value) is grade


def test_the_worst_grade_counts_and_ignorance_hides_nothing_bad() -> None:
    assert overall([]) is Grade.OK
    assert overall([Grade.OK, Grade.UNKNOWN]) is Grade.UNKNOWN
    assert overall([Grade.WARNING, Grade.UNKNOWN]) is Grade.WARNING
    assert overall([Grade.CRITICAL, Grade.UNKNOWN]) is Grade.CRITICAL


def test_a_broker_that_is_away_is_critical_and_the_rest_is_not_known() -> None:
    away = Seen(_TIME, "nats://b:4222", trouble="no broker at nats://b:4222")

    verdicts = judge(list(Check), away, Thresholds())

    grades = {verdict.check: verdict.grade for verdict in verdicts}
    assert grades.pop(Check.CONNECTION) is Grade.CRITICAL
    assert set(grades.values()) == {Grade.UNKNOWN}
    assert all(verdict.findings[0].text == away.trouble for verdict in verdicts)


@pytest.mark.parametrize(
    ("connect", "rtt", "grade"),
    [(0.1, 0.1, Grade.OK), (0.6, 0.1, Grade.WARNING), (0.1, 1.5, Grade.CRITICAL)],
)
def test_a_slow_line_is_told(connect: float, rtt: float, grade: Grade) -> None:
    assert _judged(Check.CONNECTION, reached=Reached(connect, rtt)).grade is grade


@pytest.mark.parametrize(
    ("changed", "grade", "said"),
    [
        pytest.param({}, Grade.OK, "10 messages of 3 hosts", id="well"),
        pytest.param({"lost_messages": 1}, Grade.CRITICAL, "damaged", id="damage"),
        pytest.param({"current_partitions": 0}, Grade.CRITICAL, "logbroker apply", id="no number"),
        pytest.param(
            {"strays": Strays(4, 1, ("logs.p9.x",))}, Grade.WARNING, "logs.p9.x", id="strays"
        ),
        pytest.param(
            {"partitions": tuple(replace(one, pending=None) for one in seen().partitions)},
            Grade.CRITICAL,
            "p0, p1 without a consumer",
            id="no consumers",
        ),
    ],
)
def test_the_stream_is_whole_and_read(changed: dict[str, Any], grade: Grade, said: str) -> None:
    verdict = _judged(Check.STREAM, seen(**changed))

    assert verdict.grade is grade
    assert said in verdict.findings[0].text


@pytest.mark.parametrize(
    ("limits", "grade"),
    [
        pytest.param(Thresholds(), Grade.OK, id="by default"),
        pytest.param(Thresholds(lag=Limit(4)), Grade.OK, id="fewer than that"),
        pytest.param(Thresholds(lag=Limit(3)), Grade.WARNING, id="so many messages"),
        pytest.param(Thresholds(lag=Limit(1, 2)), Grade.CRITICAL, id="too many messages"),
        pytest.param(Thresholds(age=Limit(60)), Grade.WARNING, id="for so long"),
        pytest.param(Thresholds(age=Limit(60, 100)), Grade.CRITICAL, id="for too long"),
    ],
)
def test_what_waits_is_told_by_partition(limits: Thresholds, grade: Grade) -> None:
    verdict = _judged(Check.LAG, seen(), limits)

    assert verdict.grade is grade
    assert (grade is Grade.OK) is not verdict.findings[0].text.startswith("p0: 3 messages wait")
    assert verdict.findings[-1].text == "3 messages wait, the oldest for 2m"


def test_lines_that_go_unread_soon_are_critical_whatever_the_limits() -> None:
    verdict = _judged(Check.LAG, seen(max_age=140.0), Thresholds(age=Limit()))

    assert verdict.grade is Grade.CRITICAL
    assert "it goes unread after 2m20s" in verdict.findings[0].text


@pytest.mark.parametrize(
    ("max_age", "told"), [(140.0, 140.0), (None, 0.0)], ids=["for a time", "for ever"]
)
def test_what_waits_can_be_held_against_how_long_lines_are_kept(
    max_age: float | None, told: float
) -> None:
    verdict = _judged(Check.LAG, seen(max_age=max_age), Thresholds())

    numbers = {gauge.name: gauge.value for gauge in verdict.gauges}
    assert numbers["max_age_seconds"] == told


def test_many_partitions_are_named_in_part() -> None:
    one = seen().partitions[0]
    status = seen(partitions=tuple(replace(one, partition=number) for number in range(40)))

    verdict = _judged(Check.LAG, status, Thresholds(lag=Limit(1, 2)))

    assert len(verdict.findings) == 7
    assert verdict.findings[5].text == "and 35 more partitions"


_RETENTION: dict[str, Any] = {"LOGS": {"state": "ok"}}


@pytest.mark.parametrize(
    ("changed", "grade"),
    [
        pytest.param({}, Grade.OK, id="half full"),
        pytest.param({"bytes": 800}, Grade.WARNING, id="fuller"),
        pytest.param({"store_used": 1900}, Grade.CRITICAL, id="the store of all"),
        pytest.param({"max_messages": 12}, Grade.WARNING, id="by messages"),
        pytest.param({"bytes": 950, "max_bytes": None}, Grade.OK, id="no limit"),
        pytest.param(
            {"bytes": 950, "nodes": ({"retention": _RETENTION},)}, Grade.OK, id="received go first"
        ),
        pytest.param({"nodes": ({"name": "n", "frozen": "full"},)}, Grade.CRITICAL, id="frozen"),
        pytest.param(
            {"nodes": ({"free": 9, "reserve": 10},)},
            Grade.WARNING,
            id="the disk fills otherwise",
        ),
    ],
)
def test_the_store_is_judged_by_what_may_not_go(changed: dict[str, Any], grade: Grade) -> None:
    assert _judged(Check.STORE, seen(**changed)).grade is grade


def _replica(name: str, **changed: Any) -> Replica:
    return replace(Replica(name, False, True, False, 0, 0.1), **changed)


_LEADER = Replica("n1", True, True, False, 0, 0.0)


@pytest.mark.parametrize(
    ("replicas", "grade"),
    [
        pytest.param((_LEADER, _replica("n2"), _replica("n3")), Grade.OK, id="all"),
        pytest.param((_LEADER, _replica("n2", lag=199), _replica("n3")), Grade.OK, id="near"),
        pytest.param((_LEADER, _replica("n2", lag=200), _replica("n3")), Grade.WARNING, id="far"),
        pytest.param((_LEADER, _replica("n2")), Grade.WARNING, id="two of three"),
        pytest.param(
            (_LEADER, _replica("n2"), _replica("n3", seen_seconds=11.0)), Grade.WARNING, id="unseen"
        ),
        pytest.param(
            (_LEADER, _replica("n2", offline=True), _replica("n3", current=False)),
            Grade.CRITICAL,
            id="one of three",
        ),
        pytest.param((_replica("n2"), _replica("n3")), Grade.CRITICAL, id="no leader"),
    ],
)
def test_a_lost_majority_is_critical_and_a_lost_server_a_warning(
    replicas: tuple[Replica, ...], grade: Grade
) -> None:
    assert _judged(Check.REPLICAS, seen(wanted_replicas=3, replicas=replicas)).grade is grade


def test_more_servers_may_be_expected_than_are_configured() -> None:
    limits = Thresholds(peer_expect=3)

    assert _judged(Check.REPLICAS, seen(replicas=(_LEADER,))).grade is Grade.OK
    assert _judged(Check.REPLICAS, seen(replicas=(_LEADER,)), limits).grade is Grade.CRITICAL


@pytest.mark.parametrize(
    ("limit", "grade"),
    [
        (Limit(), Grade.OK),
        (Limit(7300.0), Grade.OK),
        (Limit(7100.0), Grade.WARNING),
        (Limit(60.0, 7100.0), Grade.CRITICAL),
    ],
)
def test_silent_hosts_are_named(limit: Limit, grade: Grade) -> None:
    census = Census()
    now = nanoseconds(NOW)
    census.last(now - 7200 * 10**9, without_payload("logs.p0.web01", {}, 0))
    census.last(now - 10**9, without_payload("logs.p0.web02", {}, 0))

    verdict = _judged(
        Check.HOSTS, seen(), Thresholds(silent=limit), hosts=census.hosts(whole=False)
    )

    assert verdict.grade is grade
    assert (grade is Grade.OK) is not verdict.findings[0].text.startswith("web01 has been silent")


@pytest.mark.parametrize(
    ("limit", "grade"),
    [(Limit(), Grade.OK), (Limit(6001.0), Grade.OK), (Limit(6000.0), Grade.WARNING)],
)
def test_a_host_that_floods_the_broker_is_named(limit: Limit, grade: Grade) -> None:
    verdict = _judged(
        *(Check.HOSTS, seen(), Thresholds(rate=limit)),
        hosts=[],
        rates={"web01": 20.0, "evil": 6000.0},
    )

    assert verdict.grade is grade
    assert (grade is Grade.OK) is not (
        verdict.findings[0].text == "evil sends 6000 messages a second"
    )
    told = {gauge.of: gauge.value for gauge in verdict.gauges if gauge.label == "host"}
    assert told == {"evil": 6000.0, "web01": 20.0}


@pytest.mark.parametrize(
    ("end", "grade"),
    [
        ("2027-11-21T16:00:00+00:00", Grade.OK),
        ("2026-12-11T16:00:00+00:00", Grade.WARNING),
        ("2026-11-25T16:00:00+00:00", Grade.CRITICAL),
        ("2026-11-20T16:00:00+00:00", Grade.CRITICAL),
    ],
)
def test_certificates_are_judged_by_the_time_that_is_left(end: str, grade: Grade) -> None:
    told = {"certificates": [{"path": "/tls/broker.pem", "not_after": end}], "name": "n1"}

    shown = _judged(Check.CERTIFICATES, reached=Reached(0.0, 0.0, end))
    reported = _judged(Check.CERTIFICATES, seen(nodes=(told,)))

    assert shown.grade is reported.grade is grade
    assert "/tls/broker.pem on n1" in reported.findings[0].text


@pytest.mark.parametrize(
    ("space", "grade"),
    [
        ({"state": "ok"}, Grade.OK),
        ({"state": "purging", "since": "2026-11-21T10:00:00Z"}, Grade.OK),
        ({"state": "hosts wait", "needed_by": ["partition 3"]}, Grade.CRITICAL),
        ({"state": "oldest lines are dropped"}, Grade.CRITICAL),
    ],
)
def test_a_stream_that_is_full_is_told(space: dict[str, Any], grade: Grade) -> None:
    node = {"name": "n1", "retention": {"LOGS": space}}
    assert _judged(Check.ROOM, seen(nodes=(node,))).grade is grade


@pytest.mark.parametrize("check", [Check.ROOM, Check.CERTIFICATES])
def test_a_bare_nats_server_leaves_nothing_to_check(check: Check) -> None:
    verdict = _judged(check, seen())

    assert verdict.absent
    assert verdict.grade is Grade.OK
