"""The options of the data source: meanings and complaints. No fixtures."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from receiver.source.options import Edge, Show, SourceOptions

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_without_options_it_reads_all_of_the_stream_of_this_machine() -> None:
    options = SourceOptions.parse({})

    assert options.servers == ("nats://127.0.0.1:4222",)
    assert (options.stream, options.subjects) == (None, None)
    assert (options.starting, options.ending) == (None, None)
    assert options.fail_on_data_loss
    assert options.show == Show(headers=True, explode=False)


@pytest.mark.parametrize(
    ("given", "starting"),
    [
        ({"startingOffsets": "Earliest"}, Edge.EARLIEST),
        ({"startingOffsets": "latest"}, Edge.LATEST),
        ({"startingOffsets": "123"}, 123),
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


@pytest.mark.parametrize(
    ("given", "subjects"),
    [
        ({"partitions": "all"}, None),
        ({"partitions": "3, 0,3"}, ("logs.p0.>", "logs.p3.>")),
        ({"hosts": "web01, db.example,web01"}, ("logs.*.web01", "logs.*.db.example")),
    ],
)
def test_partitions_or_hosts_choose_what_is_read(
    given: dict[str, str], subjects: tuple[str, ...] | None
) -> None:
    assert SourceOptions.parse(given).subjects == subjects


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"server": "x"}, "no option 'server'; there are servers, stream, partitions"),
        ({"stream": "a.b"}, "stream 'a.b' is not a name"),
        ({"partitions": "1,x"}, "partitions '1,x' is not"),
        ({"partitions": "1234567"}, "partitions '1234567' is not"),
        ({"partitions": "-1"}, "partitions '-1' is not"),
        ({"startingOffsets": "first"}, "startingOffsets 'first' is not"),
        ({"startingOffsets": '{"0": 1}'}, "is not earliest, latest, or a sequence"),
        ({"startingOffsets": "0"}, "startingOffsets '0' is not"),
        ({"startingOffsets": "-2"}, "startingOffsets '-2' is not"),
        ({"startingOffsets": "9" * 5000}, "is not"),
        ({"endingOffsets": "soon"}, "endingOffsets 'soon' is not"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp 'yesterday' is not"),
        ({"startingTimestamp": "9" * 30}, "is not"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger '0' is not a positive"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger 'many' is not"),
        ({"maxBytesPerTrigger": "9" * 5000}, "is not a positive"),
        ({"hosts": "a", "partitions": "1"}, "partitions and hosts are two ways"),
        ({"hosts": "web*"}, r"hosts: host name 'web\*' holds"),
        ({"servers": "http://me:s3cret@x"}, "servers: 'x' is no address of a NATS server"),
        ({"user": "me"}, "user and password come together"),
        ({"creds": "a", "nkey": "b"}, "creds and nkey are two ways to say who this is"),
        ({"tlsKey": "a"}, "give that with tlsCert"),
        ({"explode": "yes"}, "explode 'yes' is not one of false, true"),
        ({"lineType": "text"}, "lineType 'text' is not one of string, binary"),
        ({"minPartitions": "-3"}, "minPartitions '-3' is not"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss 'no' is not one of true, false"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        SourceOptions.parse(given)


def test_lines_come_without_headers_unless_these_are_asked_for() -> None:
    assert not SourceOptions.parse({"explode": "true"}).show.headers
    assert SourceOptions.parse({"explode": "true", "includeHeaders": "true"}).show.headers


def test_how_to_get_in_is_told_in_the_words_of_the_programs_and_never_shown() -> None:
    options = SourceOptions.parse(
        {
            "servers": "tls://me:s3cret@broker:4222",
            "user": "central",
            "password": " s3cret",
            "tlsCa": "/etc/ca.pem",
            "tlsFirst": "true",
        }
    )

    assert (options.access.user, options.access.password) == ("central", " s3cret")
    assert (options.access.tls_ca, options.access.tls_first) == (Path("/etc/ca.pem"), True)
    assert "s3cret" not in repr(options)
