"""The options of the data source: meanings and complaints. No fixtures."""

from datetime import UTC, datetime

import pytest

from broker.exits import ConfigurationError
from receiver.source.options import Edge, SourceOptions

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_without_options_it_reads_all_of_the_stream_of_this_machine() -> None:
    options = SourceOptions.parse({})

    assert options.servers == ("nats://127.0.0.1:4222",)
    assert (options.stream, options.partitions) == ("LOGS", None)
    assert (options.starting, options.ending) == (None, Edge.LATEST)
    assert (options.fail_on_data_loss, options.include_headers) == (True, True)


def test_names_are_taken_in_any_case_as_spark_does() -> None:
    options = SourceOptions.parse({"SERVERS": "nats://a:1, nats://b:2", "includeheaders": "FALSE"})

    assert options.servers == ("nats://a:1", "nats://b:2")
    assert not options.include_headers


@pytest.mark.parametrize(
    ("given", "starting"),
    [
        ({"startingOffsets": "Earliest"}, Edge.EARLIEST),
        ({"startingOffsets": "latest"}, Edge.LATEST),
        ({"startingOffsets": '{"3": 123, "0": 0}'}, {3: 123, 0: 0}),
        ({"startingTimestamp": "1795176000000"}, NOON),
        ({"startingTimestamp": "2026-11-20T12:00:00Z"}, NOON),
        ({"startingTimestamp": "2026-11-20T13:00:00+01:00"}, NOON),
        ({"startingTimestamp": "2026-11-20T12:00:00"}, NOON),
        ({"startingTimestamp": "2026-11-20T12:00:00Z", "startingOffsets": "latest"}, NOON),
    ],
)
def test_a_query_begins_at_an_edge_a_sequence_or_a_time(
    given: dict[str, str], starting: object
) -> None:
    assert SourceOptions.parse(given).starting == starting


def test_sequences_name_the_partitions_unless_these_are_given() -> None:
    offsets = '{"3": 123, "0": 5}'

    assert SourceOptions.parse({"startingOffsets": offsets}).partitions == (0, 3)
    assert SourceOptions.parse({"startingOffsets": offsets, "partitions": "3"}).partitions == (3,)


def test_sizes_may_have_a_unit() -> None:
    options = SourceOptions.parse({"maxBytesPerTrigger": "64m", "maxOffsetsPerTrigger": "1000"})

    assert (options.most_bytes, options.most_offsets) == (64 * 1024 * 1024, 1000)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"server": "x"}, "no option 'server'; there are servers, stream, partitions"),
        ({"stream": "a.b"}, "stream 'a.b' is not a name"),
        ({"stream": ""}, "stream '' is not a name"),
        ({"partitions": "1,x"}, "partitions '1,x' is neither"),
        ({"partitions": ""}, "partitions '' is neither"),
        ({"partitions": "-1"}, "partitions '-1' is neither"),
        ({"startingOffsets": "first"}, "startingOffsets 'first' is neither"),
        ({"startingOffsets": "[1]"}, "startingOffsets '.1.' is neither"),
        ({"startingOffsets": "{}"}, "startingOffsets '{}' is neither"),
        ({"startingOffsets": '{"a": 1}'}, "is neither"),
        ({"startingOffsets": '{"0": -2}'}, "is neither"),
        ({"partitions": "0,1", "startingOffsets": '{"0": 1}'}, "no sequence for partition 1"),
        ({"endingOffsets": "soon"}, "endingOffsets 'soon' is neither"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp 'yesterday' is neither"),
        ({"startingTimestamp": "9" * 30}, "is neither"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger '0' is not a positive"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger 'many' is not"),
        ({"minPartitions": "-3"}, "minPartitions '-3' is not"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss 'no' is neither true nor false"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        SourceOptions.parse(given)
