"""Brokers of several sites: one that buffers behind a firewall, and a second one that holds a copy and takes over."""

from functools import partial
from pathlib import Path

import pytest

from broker.client import bucket
from broker.client.access import Access
from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import BrokerAway
from broker.wire.streams import POSITIONS_BUCKET
from broker.wire.subjects import Subject
from tests.shipper.conftest import read_stream
from tests.support.oracle import judge
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats]

PARTITIONS = 2


def site(processes: Processes, folder: Path) -> Suite:
    (folder / "store").mkdir(parents=True)
    return Suite(folder, processes, PARTITIONS)


def append(log: Path, first: int, until: int) -> None:
    with log.open("ab") as file:
        file.writelines(
            b"%06d %s\n" % (number, b"x" * (number % 997)) for number in range(first, until)
        )


def held(suite: Suite, host: str) -> int:
    """Return how many messages of a host are there; 0 where the broker is away."""
    try:
        found = suite.stream()["state"].get("subjects") or {}
    except (BrokerAway, ConnectionLost, Rejected):
        return 0
    return sum(count for subject, count in found.items() if subject.endswith(f".{host}"))


def stored(suite: Suite, host: str) -> bytes:
    """Return the lines that the stream holds of a host, in its order."""
    subject = Subject.for_host(host, PARTITIONS)
    return b"".join(one.lines for one in suite.ask(partial(read_stream, subject=subject)))


def write_positions(suite: Suite, value: bytes, revision: int) -> int:
    return suite.ask(lambda c: bucket.write(c, POSITIONS_BUCKET, "web09", value, revision))


def positions(suite: Suite) -> bytes | None:
    entry = suite.ask(lambda c: bucket.read(c, POSITIONS_BUCKET, "web09"))
    return entry.value if entry else None


def has_all(suite: Suite, other: Suite, host: str, seconds: float, *watched: Process) -> None:
    wait_until(
        f"{suite.folder.name} has all of {host} that {other.folder.name} has",
        lambda: 0 < held(suite, host) == held(other, host),  # an away one holds none
        seconds,
        watched,
    )


def ship(suite: Suite, host: str, log: Path, *options: str) -> None:
    shipper = suite.start_shipper(host, [log], "--once", *options)
    assert shipper.wait(120) == 0, shipper.last_words()


@pytest.mark.long  # nats-server takes its time to ask another site again
@pytest.mark.timeout(540)
def test_lines_that_a_site_behind_a_firewall_buffers_reach_the_centre_once_and_in_order(
    processes: Processes, tmp_path: Path
) -> None:
    centre, branch = site(processes, tmp_path / "centre"), site(processes, tmp_path / "branch")
    door = f"127.0.0.1:{free_port()}"
    settings = tmp_path / "centre.toml"
    settings.write_text(f'site = "centre"\nsite_listen = "{door}"\n')
    broker = centre.start_broker("--config", str(settings))
    buffer = branch.start_broker("--site", "branch", "--site-remote", f"nats-leaf://{door}")
    away, near = tmp_path / "away.log", tmp_path / "near.log"
    append(away, 0, 3000)
    append(near, 0, 1000)

    ship(branch, "away01", away)
    ship(centre, "near01", near)
    with settings.open("a") as file:
        file.write('source = ["branch"]\n')
    broker.hang_up()
    has_all(centre, branch, "away01", 60, broker, buffer)
    broker.kill()
    append(away, 3000, 6000)
    ship(branch, "away01", away)  # while the centre is gone
    buffer.kill()
    buffer.start()
    branch.wait_for_broker(buffer)
    append(away, 6000, 7000)
    ship(branch, "away01", away)
    broker.start()
    centre.wait_for_broker(broker)

    # nats-server asks another site again after 40 s, and then ever more rarely, up to every two minutes
    has_all(centre, branch, "away01", 130, broker, buffer)
    for suite, host, log in (
        (branch, "away01", away),
        (centre, "away01", away),
        (centre, "near01", near),
    ):
        verdict = judge([log.read_bytes()], stored(suite, host))
        assert verdict.is_perfect, f"{host} at {suite.folder.name}: {verdict}"
    assert held(branch, "near01") == 0


@pytest.mark.timeout(540)
@pytest.mark.long
def test_a_second_site_holds_a_copy_and_goes_on_with_it_when_the_first_is_lost(
    processes: Processes, tmp_path: Path
) -> None:
    first, second = site(processes, tmp_path / "first"), site(processes, tmp_path / "second")
    door = f"127.0.0.1:{free_port()}"
    for kind, name in (("site", "second"), ("host", "web01"), ("admin", "operator")):
        where = ("--store-dir", str(first.folder / "store"))
        output = ("--output", str(first.folder / f"{kind}.toml"))
        first.administer("credentials", "add", kind, name, *where, *output)
    first.access = Access(nkey=first.folder / "admin.toml")
    broker = first.start_broker("--site", "first", "--site-listen", door)
    copy = second.start_broker(
        *("--site", "second", "--site-remote", f"nats-leaf://{door}", "--mirror", "first"),
        *("--site-nkey", str(first.folder / "site.toml")),
    )
    log = tmp_path / "app.log"
    append(log, 0, 3000)
    ship(first, "web01", log, "--config", str(first.folder / "host.toml"))
    has_all(second, first, "web01", 60, broker, copy)
    assert second.last_sequence() == first.last_sequence() > 0
    revision = write_positions(first, b"at first", 0)
    wait_until("positions are copied", lambda: positions(second) == b"at first", 60)

    broker.kill()
    second.administer("apply", "--mirror", "")
    write_positions(second, b"at second", revision)
    append(log, 3000, 6000)
    ship(second, "web01", log)

    verdict = judge([log.read_bytes()], stored(second, "web01"))
    assert verdict.is_perfect, verdict
    assert copy.stop() == 0
    stays = second.start_broker("--site", "second")  # without --mirror, as it was told
    assert second.stream()["config"]["subjects"] == ["logs.p0.>", "logs.p1.>"]
    assert stays.stop() == 0
    again = second.start_program(
        "logbroker",
        "mirror-again",
        [
            *("run", "--store-dir", str(second.folder / "store"), "--listen", "127.0.0.1:0"),
            *("--http", "", "--partitions", "2", "--site", "second", "--mirror", "first"),
        ],
    )
    assert again.wait(60) == 78
    assert "--mirror" in again.said()
