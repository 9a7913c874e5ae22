import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.provision.comparing import Wanted
from broker.provision.document import Document, MalformedDocument, cleaned, files, read, text
from broker.provision.steps import Kind
from broker.topology import Topology
from broker.wire.streams import consumer_config

TOPOLOGY = Topology(partitions=2)
CONFIGS = [cleaned(one) for one in TOPOLOGY.streams()]
STREAMS = tuple(Wanted(Kind.STREAM, one["name"], one) for one in CONFIGS)
CONSUMERS = tuple(
    Wanted(Kind.CONSUMER, f"receiver-p{n}", consumer_config(n), "LOGS") for n in range(2)
)
WHOLE = Document((*STREAMS, *CONSUMERS), 2)

values = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(), max_size=2)
anything = st.recursive(
    values, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


def test_one_text_holds_everything() -> None:
    assert read("-", text(WHOLE)) == WHOLE


def test_files_hold_everything_in_any_order() -> None:
    parts = files(WHOLE)

    found = sum((read(name, parts[name]) for name in sorted(parts)), Document(()))

    assert (set(map(repr, found.wanted)), found.partitions) == (set(map(repr, WHOLE.wanted)), 2)
    assert [one.kind for one in found.wanted] == [Kind.STREAM] * 4 + [Kind.CONSUMER] * 2
    assert sorted(parts)[:3] == [
        f"KV_LOGS_{name}.json" for name in ("CONFIG", "OFFSETS", "POSITIONS")
    ]
    assert "LOGS.receiver-p1.json" in parts


@pytest.mark.parametrize(
    ("content", "stream"),
    [
        ({"type": "x", "config": CONFIGS[0], "state": {}}, ""),
        (CONFIGS[0], ""),
        ({"stream_name": "LOGS", "name": "receiver-p0", "config": consumer_config(0)}, "LOGS"),
    ],
    ids=["stream info", "stream", "consumer info"],
)
def test_what_the_nats_tool_shows_can_be_read(content: dict[str, Any], stream: str) -> None:
    (found,) = read("info.json", json.dumps(content)).wanted

    assert found.stream == stream
    assert found.config == content.get("config", content)


def test_what_a_server_adds_is_no_part_of_a_configuration() -> None:
    config = {
        "name": "LOGS",
        "consumer_limits": {},
        "mirror": None,
        "metadata": {"_nats.ver": "2.15.1", "logship.restored_from": "[]", "owner": "ops"},
    }

    assert cleaned(config) == {"name": "LOGS", "metadata": {"owner": "ops"}}


def test_a_field_that_nobody_knows_is_left_out_and_named() -> None:
    document = read("LOGS.json", '{"name": "LOGS", "max_age": 5, "max_colour": 3}')

    assert document.wanted[0].config == {"name": "LOGS", "max_age": 5}
    assert document.unknown == ("max_colour of stream LOGS",)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", "{", "not JSON"),
        ("a.json", "[" * 100_000, "not JSON"),
        ("a.json", "[]", "not a JSON object"),
        ("a.json", '{"logship": 2}', "version 2"),
        ("a.json", '{"logship": 1, "streams": {"a": 1}}', "streams is not a list"),
        ("a.json", '{"logship": 1, "consumers": [1]}', "consumer that is no JSON object"),
        ("a.json", '{"logship": 1, "partitions": "many"}', "no number of partitions"),
        ("a.json", '{"name": "a.b"}', "no name of a stream"),
        ("a.json", '{"durable_name": "c"}', "call the file STREAM.c.json"),
        ("LOGS_CONFIG.partitions", "0", "no number of partitions"),
        ("LOGS_CONFIG.partitions", "20000", "no number of partitions: there are 1 to 10000"),
        ("a.json", '{"logship": 1, "partitions": 20000}', "no number of partitions"),
        (
            "a.json",
            '{"name": "a", "metadata": ["team=ops"]}',
            "metadata of stream a is no JSON object",
        ),
        (
            "a.json",
            '{"name": "a", "metadata": {"team": 1}}',
            "metadata of stream a holds what is no text",
        ),
        ("a.json", '{"name": "a", "subjects": "logs.>"}', "subjects of stream a is no list"),
        ("LOGS.c.json", '{"durable_name": "c", "metadata": "x"}', "metadata of consumer c"),
    ],
)
def test_what_is_no_configuration_is_refused_with_the_reason(
    name: str, content: str, reason: str
) -> None:
    with pytest.raises(MalformedDocument, match=reason):
        read(name, content)


@given(st.sampled_from(["x.json", "LOGS.c.json", "LOGS_CONFIG.partitions"]), anything)
def test_any_other_json_is_read_or_refused(name: str, content: object) -> None:
    try:
        found = read(name, json.dumps(content))
    except MalformedDocument:
        return
    assert all(one.name for one in found.wanted)


keys = st.sampled_from(["logship", "streams", "consumers", "partitions", "config", "name", "x"])


@settings(max_examples=50)
@given(st.dictionaries(keys, anything | st.just(1)))
def test_a_document_with_any_content_is_read_or_refused(content: dict[str, object]) -> None:
    try:
        found = read("x.json", json.dumps({"logship": 1, **content}))
    except MalformedDocument:
        return
    assert all(one.name for one in found.wanted)
