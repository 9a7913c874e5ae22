"""A setting that cannot be is refused by its name."""

import click
import pytest

from broker.app.configuration import load
from broker.settings import BrokerSettings


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"partitions": "0"}, "--partitions"),
        ({"max_age": "0s"}, "--max-age"),
        ({"max_age": "300000d"}, "--max-age: .*100000d"),
        ({"max_bytes": "5Q"}, "--max-bytes"),
        ({"max_bytes": "0"}, "--max-bytes"),
        ({"max_bytes": "99999PB"}, "--max-bytes: .*less than or equal"),
        ({"listen": "here"}, "--listen"),
        ({"memory": "-1"}, "--memory"),
        ({"server_name": "a b"}, "--server-name"),
        ({"route": ("http://b2:1",)}, "--route"),
        ({"route": ("nats-route://b2:0",)}, "--route"),
        ({"route": ("nats-route://u:s3cret@b2:6222",)}, "--cluster-secret-file"),
        ({"site_remote": ("nats-leaf://hub",)}, "--site-remote"),
        ({"source": ("a b",)}, "--source"),
        *(
            ({"server": ("nats://127.0.0.1:4222", one)}, "--server: .* is no address of a NATS")
            for one in ("http://b1", "nats://me:s3cret@b1:port", "nats://[::1", "nats://", "")
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name_and_shows_no_secret(
    options: dict[str, object], reason: str
) -> None:
    with pytest.raises(click.UsageError, match=reason) as refused:
        load(BrokerSettings, options, None)

    assert "s3cret" not in str(refused.value)


def test_servers_are_taken_several_in_one_text_too() -> None:
    some = ("nats://127.0.0.1:4222", "tls://broker1:4222", "nats://[::1]:4222", "b1:4222", "b1")

    assert load(BrokerSettings, {"server": (", ".join(some),)}, None).server == some
