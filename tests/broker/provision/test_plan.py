"""Plans as values: what is created, updated and deleted, and what is refused."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.provision.plan import (
    Actual,
    Step,
    compare,
    describe,
    format_value,
    plan,
    plan_partitions,
    serialize_plan,
)
from broker.topology import MAX_COPIED_MESSAGE, Topology
from nats_logship.app.exits import ConfigurationError

NOTHING = Actual({}, {})
STATE = {"bytes": 0, "first_ts": "2026-11-23T10:00:00Z"}
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


def as_applied(
    topology: Topology,
    *,
    messages: int = 0,
    offsets: int = 0,
    partitions: str | None = "as applied",
) -> Actual:
    """Return what a server has after `topology` was applied, with defaults of its own."""
    number = str(topology.partitions) if partitions == "as applied" else partitions
    entries = {"partitions": number, "streams": str(topology.stream_count)}
    held = dict.fromkeys(topology.names, messages)
    return Actual(
        streams={
            config["name"]: {
                # a server leaves out empty fields
                "config": {**DEFAULTS, **{field: one for field, one in config.items() if one}},
                "state": {
                    **STATE,
                    "messages": held.get(config["name"], 0),
                    "num_subjects": offsets,
                },
                "ts": "2026-11-23T10:00:01Z",
            }
            for config in topology.streams()
        },
        entries={key: (value, 1) for key, value in entries.items() if value is not None},
    )


@given(topologies)
def test_a_plan_after_an_apply_is_empty(topology: Topology) -> None:
    assert plan(topology, as_applied(topology, messages=9, offsets=1)) == ()


def test_an_empty_server_gets_all_streams_and_the_partitions_entry_last() -> None:
    made = plan(Topology(partitions=2), NOTHING)

    assert {step.action for step in made} == {"create"}
    assert [step.name for step in made] == [
        "KV_LOGS_CONFIG",
        "LOGS_CONFIG/streams",
        "LOGS",
        "KV_LOGS_OFFSETS",
        "KV_LOGS_POSITIONS",
        "LOGS_CONFIG/partitions",
    ]


@given(topologies, topologies, st.integers(0, 3), st.integers(0, 3))
def test_only_a_changed_number_with_stored_lines_is_refused(
    before: Topology, after: Topology, messages: int, offsets: int
) -> None:
    there = as_applied(before, messages=messages, offsets=offsets)

    if before.partitions != after.partitions and (messages or offsets):
        with pytest.raises(ConfigurationError, match=f"`logbroker partitions {after.partitions}`"):
            plan(after, there)
    else:
        plan(after, there)


@pytest.mark.parametrize("stored", [None, "", "\x03\ufffd", "0", "three"])
@pytest.mark.parametrize("is_given", [True, False], ids=["given", "not given"])
def test_an_unreadable_number_of_partitions_is_restored_from_subjects(
    stored: str | None, is_given: bool
) -> None:
    damaged = as_applied(Topology(partitions=3), partitions=stored, messages=9, offsets=3)

    made = plan(Topology(partitions=3 if is_given else 10, partitions_given=is_given), damaged)

    assert [(step.name, step.config) for step in made] == [
        ("LOGS_CONFIG/partitions", {"value": "3"})
    ]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 3), st.integers(0, 3))
def test_a_new_number_of_partitions_only_adds_subjects_and_comes_last(
    before: int, after: int, messages: int, offsets: int
) -> None:
    held = as_applied(Topology(partitions=before), messages=messages, offsets=offsets)

    made = plan_partitions(after, held)

    added = [step.config["subjects"] for step in made if step.kind == "stream"]
    assert added == ([[f"logs.p{n}.>" for n in range(after)]] if after > before else [])
    (*_, last) = made or (None,)
    assert (last is None) == (before == after)
    assert last is None or (last.kind, last.config) == ("entry", {"value": str(after)})
    changed = as_applied(Topology(partitions=after, existing=max(before, after)))
    assert plan_partitions(after, changed) == ()


@pytest.mark.parametrize(("there", "wanted", "left"), [(9, 6, 6), (6, 9, 6), (0, 9, 9)])
def test_a_start_in_a_cluster_only_lowers_the_limit(there: int, wanted: int, left: int) -> None:
    before = Topology(max_bytes=there or None)

    made = plan(Topology(max_bytes=wanted, may_grow=False), as_applied(before))

    after = {step.name: step.config["max_bytes"] for step in made}
    assert after.get("LOGS", there) == left


def test_a_start_lowers_no_limit_while_some_streams_do_not_exist() -> None:
    desired = Topology(max_bytes=1000, stream_count=4, may_grow=False)
    whole = as_applied(desired)
    half = {name: info for name, info in whole.streams.items() if name not in {"LOGS_2", "LOGS_3"}}

    made = plan(desired, replace(whole, streams=half))

    assert {step.name: step.config["max_bytes"] for step in made} == {"LOGS_2": 250, "LOGS_3": 250}


def test_a_promoted_mirror_takes_lines_of_its_partitions_only() -> None:
    copy = as_applied(Topology(partitions=2, mirror="first"), messages=9)

    made = plan(Topology(partitions=2, mirror=""), copy)

    assert not plan(Topology(partitions=2), copy)  # only who says so ends a copy
    assert not any(step.config.get("mirror") for step in made)
    assert {step.name: step.config["subjects"] for step in made} == {
        "LOGS": ["logs.p0.>", "logs.p1.>"],
        "KV_LOGS_CONFIG": ["$KV.LOGS_CONFIG.>"],
        "KV_LOGS_POSITIONS": ["$KV.LOGS_POSITIONS.>"],
    }


def stream(**config: Any) -> Step:
    return Step("stream", "LOGS", config)


def info(config: dict[str, Any]) -> dict[str, Any]:
    return {"config": config, "state": {"messages": 0}}


def test_undeclared_fields_and_foreign_metadata_are_kept() -> None:
    theirs = {"_nats.ver": "2.15.1", "theirs": "1"}
    found = {"name": "LOGS", "compression": "s2", "metadata": {**theirs, "ours": "old"}}

    (step,) = compare(stream(metadata={"ours": "new"}), info(found))

    assert step.config == {**found, "metadata": {**theirs, "ours": "new"}}
    assert not compare(stream(metadata={"ours": "new"}), info(step.config))


def test_a_plan_shows_changes_and_deletions_as_text_and_json() -> None:
    wanted = stream(max_age=2 * 86_400 * 10**9, max_bytes=33_475_333_259)
    made = compare(wanted, info({"max_age": 86_400 * 10**9}))
    made = (replace(made[0], deletes="deletes lines"),)

    assert describe(made).splitlines() == [
        "~ update stream LOGS",
        "    - max_age: 1d  + max_age: 2d",
        "    - max_bytes: not set  + max_bytes: 31.2 GiB",
        "    ! deletes lines",
    ]
    slightly = compare(stream(max_bytes=33_475_333_259), info({"max_bytes": 33_475_333_258}))
    assert "- max_bytes: 33475333258  + max_bytes: 33475333259" in describe(slightly)
    (found,) = serialize_plan(made)
    assert {"field": "max_bytes", "before": None, "after": 33_475_333_259} in found["changes"]
    assert found["deletes"] == "deletes lines"
    assert describe(()) == ""
    assert format_value("field", {"owner": "ops"}) == '{"owner": "ops"}'
    assert len(format_value("field", [*range(300)])) == 201


@pytest.mark.parametrize(("first", "is_lost"), [("10:00:03", False), ("09:59:57", True)])
def test_expired_messages_are_found_by_the_servers_clock(first: str, is_lost: bool) -> None:
    state = {"messages": 1, "bytes": 1, "first_ts": f"2026-11-23T{first}.123456789Z"}
    there = {"ts": "2026-11-23T10:00:01.987654321Z", "state": state, "config": {"name": "LOGS"}}

    (step,) = compare(stream(max_age=2 * 10**9), there)

    assert bool(step.deletes) == is_lost


@pytest.mark.parametrize(
    ("topology", "largest"),
    [
        pytest.param(Topology(), None, id="a broker alone"),
        pytest.param(Topology(sources=()), MAX_COPIED_MESSAGE, id="a site that others copy"),
        pytest.param(Topology(sources=("branch",)), -1, id="one that copies another"),
        pytest.param(Topology(sources=(), mirror="first"), -1, id="one that is a copy"),
    ],
)
def test_only_a_site_without_copies_limits_its_messages_to_a_slow_link(
    topology: Topology, largest: int | None
) -> None:
    assert topology.streams()[0].get("max_msg_size") == largest
