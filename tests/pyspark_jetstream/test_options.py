"""The options of the data source: their meanings and errors. No fixtures."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from nats_logship.app.exits import ConfigurationError
from nats_logship.client.find import EARLIEST, LATEST
from pyspark_jetstream.options import SourceOptions

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "meaning"),
    [
        ({"startingOffsets": "Earliest"}, {"starting": EARLIEST}),
        ({"startingOffsets": "latest"}, {"starting": LATEST}),
        ({"startingOffsets": "123"}, {"starting": 123}),
        ({"startingTimestamp": "1795176000000"}, {"starting": NOON}),
        ({"startingTimestamp": "2026-11-20T13:00:00+01:00"}, {"starting": NOON}),
        ({"startingTimestamp": "2026-11-20T12:00:00"}, {"starting": NOON}),
        (
            {"startingTimestamp": "2026-11-20T12:00:00Z", "startingOffsets": "latest"},
            {"starting": NOON},
        ),
        ({"partitions": "all"}, {"subjects": None}),
        ({"partitions": "3, 0,3"}, {"subjects": ("logs.p0.>", "logs.p3.>")}),
        ({"hosts": "a, db.example,a"}, {"subjects": ("logs.*.a", "logs.*.db.example")}),
        ({}, {"headers": True, "starting": None, "subjects": None}),
        ({"explode": "true"}, {"headers": False}),
        ({"explode": "true", "includeHeaders": "true"}, {"headers": True}),
    ],
)
def test_options_mean_the_same_as_in_sparks_kafka_source(
    given: dict[str, str], meaning: dict[str, object]
) -> None:
    options = SourceOptions.parse(given)

    assert {name: getattr(options, name) for name in meaning} == meaning


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"server": "x"}, "no option 'server'; it has servers, stream, partitions"),
        ({"stream": "a.b"}, "stream 'a.b' is not the name"),
        ({"partitions": "1,x"}, "partitions '1,x' is not"),
        ({"startingOffsets": "first"}, "startingOffsets 'first' is not"),
        ({"startingOffsets": "0"}, "startingOffsets '0' is not"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp 'yesterday' is not"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger '0' is not a positive"),
        ({"maxOffsetsPerTrigger": "9" * 5000}, "is not a positive"),
        ({"hosts": "a", "partitions": "1"}, "partitions and hosts both choose"),
        ({"hosts": "web*"}, r"hosts: host name 'web\*' holds"),
        ({"servers": "http://me:s3cret@x"}, "servers: 'x' is not the address of a NATS server"),
        ({"servers": "nats://me:a://b@x"}, "servers: 'x' is not the address of a NATS server"),
        ({"explode": "yes"}, "explode 'yes' is not true or false"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        SourceOptions.parse(given)


def test_credentials_are_options_and_never_shown() -> None:
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
