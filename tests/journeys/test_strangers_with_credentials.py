"""Messages that no shipper of ours sent, from hosts that have credentials: they stop nobody."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from bench.processes import Processes, wait_until
from broker.wire.subjects import Subject
from tests.journeys.site import Site

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(360)]

ZSTD = {"Content-Encoding": "zstd"}
LINES = [b"line %d of web01\n" % number for number in range(1000)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Processes(tmp_path) as programs:
        yield Site(tmp_path, programs)


def test_what_strangers_publish_stops_no_partition_and_no_shipper(site: Site) -> None:
    own = Subject.for_host("web01", 2)
    evil = next(
        subject
        for number in range(20)
        if (subject := Subject.for_host(f"evil{number}", 2)).partition == own.partition
    )
    site.credentials("add", "host", "web01")
    site.credentials("add", "host", evil.host)
    site.credentials("add", "receiver", "all")
    out, log = site.folder / "out", site.folder / "app.log"
    receiver = site.start(
        *("receiver", "receiver", "--config", site.folder / "receiver-all.toml", "--output", out)
    )

    def has(host: str, lines: bytes) -> None:
        path = out / f"{host}.log"
        words = f"the lines of {host} are received"
        wait_until(words, lambda: path.exists() and path.read_bytes() == lines, 120, [receiver])

    log.write_bytes(b"".join(LINES[:500]))
    shipper = site.ship("web01", "host-web01.toml")
    has("web01", b"".join(LINES[:500]))
    assert shipper.stop(20) == 0
    site.publish("web01", str(own), (b"", None))
    sequence = site.publish(
        evil.host,
        str(evil),
        *[(b"", None)] * 100,
        (b"a plain line", None),
        (b"", None),
        (b"not zstd", ZSTD),
        (zstandard.compress(bytes(60 * 1024 * 1024)), ZSTD),
        (b"", {"Log-Agent": "1-1", "Log-Read-At": "1"}),
        (b"", {"Status": "404"}),
        (b"another", {"Log-Spans": "x"}),
        (b"", None),
    )
    with log.open("ab") as file:
        file.write(b"".join(LINES[500:]))
    shipper = site.ship("web01", "host-web01.toml")

    has("web01", b"".join(LINES))
    has(evil.host, b"a plain line\n")
    kept = b"".join(path.read_bytes() for path in (out / ".quarantine").iterdir())
    assert [f'"sequence": {number},'.encode() in kept for number in (sequence - 1, sequence)] == [
        True,
        False,
    ]
    assert kept.count(b'{"subject"') == 3

    for path in (out / ".quarantine").iterdir():
        site.operate("requeue", str(path))
    has(evil.host, b"a plain line\nanother\n")  # the others can still be no lines
    assert (shipper.stop(20), receiver.stop(20)) == (0, 0)
    assert "blocked" not in receiver.said()
