from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.exits import ConfigurationError
from broker.provision.plan import (
    Actual,
    Change,
    Step,
    as_json,
    compare,
    deleted_by,
    describe,
    plan,
    plan_partitions,
    plan_promotion,
    shown,
)
from broker.topology import Topology
from broker.wire.streams import StreamLayout, consumer_config

NOTHING = Actual(streams={}, consumers={}, partitions=None, messages=0, offsets=0)
DEFAULTS = {"max_msgs": -1, "compression": "none", "metadata": {"_nats.ver": "2.15.1"}}

limits = st.none() | st.just(-1) | st.integers(1, 10**15)
topologies = st.builds(
    Topology,
    partitions=st.integers(1, 12),
    stream_count=st.just(3),
    max_age=st.timedeltas(timedelta(seconds=1), timedelta(days=400)),
    max_bytes=limits,
    discard=st.sampled_from(["old", "new"]),
    replicas=st.integers(1, 5),
)


def as_applied(topology: Topology, **changes: object) -> Actual:
    """Return what a server would tell after `topology` was applied: the same, with defaults of its own."""
    actual = Actual(
        streams={
            config["name"]: {
                **DEFAULTS,
                **{field: value for field, value in config.items() if value},  # as a server says it
            }
            for config in topology.streams()
        },
        consumers={
            f"receiver-p{n}": {"max_deliver": -1, **consumer_config(n)}
            for n in range(topology.all_partitions)
        },
        partitions=str(topology.partitions),
        messages=0,
        offsets=0,
        streams_entry=str(topology.stream_count),
        stream_count=topology.stream_count,
    )
    return replace(actual, **changes)  # type: ignore[arg-type]


@given(topologies)
def test_what_was_applied_once_leaves_nothing_to_do(topology: Topology) -> None:
    assert plan(topology, as_applied(topology, messages=9, offsets=1)) == ()


def test_an_empty_server_gets_everything_and_the_number_of_partitions_last() -> None:
    made = plan(Topology(partitions=2), NOTHING)

    assert {step.action for step in made} == {"create"}
    assert [step.name for step in made] == [
        "KV_LOGS_CONFIG",
        "LOGS_CONFIG/streams",
        "LOGS",
        "KV_LOGS_OFFSETS",
        "KV_LOGS_POSITIONS",
        "receiver-p0",
        "receiver-p1",
        "LOGS_CONFIG/partitions",
    ]


@given(topologies, topologies, st.integers(0, 3), st.integers(0, 3))
def test_only_a_changed_number_over_stored_lines_is_refused(
    before: Topology, after: Topology, messages: int, offsets: int
) -> None:
    there = as_applied(before, messages=messages, offsets=offsets)

    if before.partitions != after.partitions and (messages or offsets):
        with pytest.raises(ConfigurationError, match=f"`logbroker partitions {after.partitions}`"):
            plan(after, there)
    else:
        plan(after, there)


def test_an_update_names_the_changed_fields_only_and_keeps_what_we_do_not_declare() -> None:
    made = plan(Topology(max_age=timedelta(days=2)), as_applied(Topology()))

    (step,) = made
    assert (step.action, step.name) == ("update", "LOGS")
    assert step.changes == (Change("max_age", 86_400 * 10**9, 2 * 86_400 * 10**9),)
    assert step.config["compression"] == "none"


@pytest.mark.parametrize("stored", [None, "", "\x03\ufffd", "0", "three"])
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
def test_a_number_that_cannot_be_read_is_mended_from_what_was_made_by_it(
    stored: str | None, is_told: bool
) -> None:
    damaged = replace(as_applied(Topology(partitions=3)), partitions=stored, messages=9, offsets=3)

    made = plan(Topology(partitions=3 if is_told else 10, partitions_told=is_told), damaged)

    assert [(step.name, step.config) for step in made] == [
        ("LOGS_CONFIG/partitions", {"value": "3"})
    ]


def after_change(before: int, after: int, **changes: object) -> Actual:
    """Return what a server would tell after hosts went over to another number of partitions."""
    most = max(before, after)
    return as_applied(
        Topology(partitions=after, existing=most),
        consumers={f"receiver-p{n}": consumer_config(n) for n in range(most)},
        **changes,
    )


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 3), st.integers(0, 3))
def test_a_changed_number_adds_what_is_missing_removes_nothing_and_comes_last(
    before: int, after: int, messages: int, offsets: int
) -> None:
    held = as_applied(Topology(partitions=before), messages=messages, offsets=offsets)

    made = plan_partitions(after, held)

    made_consumers = {step.name for step in made if step.kind == "consumer"}
    assert made_consumers == {f"receiver-p{n}" for n in range(before, after)}
    (*_, last) = made or (None,)
    assert (last is None) == (before == after)
    assert last is None or (last.kind, last.config) == ("entry", {"value": str(after)})
    assert plan_partitions(after, after_change(before, after)) == ()


@pytest.mark.parametrize(("messages", "offsets"), [(0, 0), (1, 0), (0, 1)])
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
def test_partitions_that_hosts_have_left_stay(messages: int, offsets: int, is_told: bool) -> None:
    topology = Topology(partitions=3 if is_told else 10, partitions_told=is_told)

    assert plan(topology, after_change(5, 3, messages=messages, offsets=offsets)) == ()


def test_a_copy_that_is_promoted_takes_lines_of_its_partitions_only() -> None:
    copies = Topology(partitions=2, mirror="first").streams()
    configs = {config["name"]: config for config in copies if config.get("mirror")}

    made = plan_promotion(configs, StreamLayout(2))

    assert {step.name: step.config["subjects"] for step in made} == {
        "LOGS": ["logs.p0.>", "logs.p1.>"],
        "KV_LOGS_CONFIG": ["$KV.LOGS_CONFIG.>"],
        "KV_LOGS_POSITIONS": ["$KV.LOGS_POSITIONS.>"],
    }


def stream(**config: Any) -> Step:
    return Step("stream", "LOGS", config)


def test_metadata_of_others_stays() -> None:
    found = {"name": "LOGS", "metadata": {"_nats.ver": "2.15.1", "theirs": "1", "ours": "old"}}

    (step,) = compare(stream(metadata={"ours": "new"}), found)

    assert step.config["metadata"] == {"_nats.ver": "2.15.1", "theirs": "1", "ours": "new"}
    assert not compare(stream(metadata={"ours": "new"}), step.config)


def test_people_and_programs_read_what_changes_and_what_that_deletes() -> None:
    wanted = stream(max_age=2 * 86_400 * 10**9, max_bytes=33_475_333_259, metadata={"_nats.x": "1"})
    made = compare(wanted, {"max_age": 86_400 * 10**9})
    made = (replace(made[0], deletes="deletes lines"),)

    assert describe(made).splitlines() == [
        "~ update stream LOGS",
        "    - max_age: 1d  + max_age: 2d",
        "    - max_bytes: not set  + max_bytes: 31.2 GiB",
        "    ! deletes lines",
    ]
    (found,) = as_json(made)
    assert {"field": "max_bytes", "before": None, "after": 33_475_333_259} in found["changes"]
    assert found["deletes"] == "deletes lines"
    assert describe(()) == ""
    assert shown("field", {"_nats.ver": "2.15.1", "owner": "ops"}) == "owner=ops"
    assert shown("field", [*range(12)]) == "0,1,2,3,4,5,6,7,8,9 and 2 more"


@pytest.mark.parametrize(("first", "is_lost"), [("10:00:03", False), ("09:59:57", True)])
def test_what_is_too_old_is_known_by_the_servers_clock(first: str, is_lost: bool) -> None:
    (step,) = compare(stream(max_age=2 * 10**9), {"name": "LOGS"})
    state = {"messages": 1, "bytes": 1, "first_ts": f"2026-11-23T{first}.123456789Z"}

    found = deleted_by(step, {"ts": "2026-11-23T10:00:01.987654321Z", "state": state})

    assert bool(found) == is_lost
