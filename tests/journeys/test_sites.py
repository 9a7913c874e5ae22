"""Brokers of several sites: one buffers behind a firewall, one holds a copy and takes over."""

import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.cli import group
from broker.topology import MAX_COPIED_MESSAGE
from nats_logship.client import bucket
from nats_logship.client.access import Access
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import BrokerAway
from nats_logship.wire.streams import POSITIONS_BUCKET
from nats_logship.wire.subjects import Subject
from tests.shipper.conftest import read_stream
from tests.support.oracle import judge
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats]

PARTITIONS = 2


def sites(processes: Processes, folder: Path, *names: str) -> list[Suite]:
    return [Suite(folder / name, processes, PARTITIONS) for name in names]


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
    assert shipper.wait(120) == 0, shipper.last_output()


def connects(suite: Suite, gateway: str, *options: str) -> Process:
    """Start the broker of a site that connects to another one."""
    name = suite.folder.name  # also of the server: two of the same name would be taken for one
    where = ("--site-remote", f"nats-leaf://{gateway}")
    return suite.start_broker("--site", name, "--server-name", name, *where, *options)


def fill(suite: Suite, host: str) -> None:
    """Publish more than nats-server sends to another site before it knows how far that one is."""
    for _ in range(12 * 1024**2 // MAX_COPIED_MESSAGE):
        suite.publish(str(Subject.for_host(host, PARTITIONS)), b"x" * (MAX_COPIED_MESSAGE - 1000))


@pytest.mark.long  # where a site is asked before it is connected, it is asked again after 40 s
@pytest.mark.timeout(540)
def test_copies_go_both_ways_through_credentials_that_allow_nothing_else(
    processes: Processes, tmp_path: Path
) -> None:
    names = ("centre", "branch", "standby")
    centre, branch, standby = sites(processes, tmp_path, *names)
    gateway = f"127.0.0.1:{free_port()}"
    keys = [("--site-nkey", str(centre.credential("site", name))) for name in names[1:]]
    centre.access = Access(nkey=centre.credential("admin", "ops"))
    broker = centre.start_broker("--site", "centre", "--site-listen", gateway)
    buffer = connects(branch, gateway, *keys[0])
    copy = connects(standby, gateway, *keys[1], "--mirror", "centre")
    asked = ("--source", "branch", "--site", "centre", "--config", str(centre.access.nkey))
    centre.administer("apply", *asked)

    fill(branch, "away01")
    fill(centre, "near01")

    for here, there, host in ((centre, branch, "away01"), (standby, centre, "near01")):
        has_all(here, there, host, 130, broker, buffer, copy)
    has_all(standby, branch, "away01", 60, broker, buffer, copy)


def invoke(suite: Suite, *arguments: str) -> Result:
    """Return what a command of logbroker says, in this process: ten times as fast as a program."""
    return CliRunner().invoke(group, [*arguments, "--server", suite.url])


def shown(suite: Suite) -> list[str]:
    lines = invoke(suite, "status").output.splitlines()
    return [line.split(None, 1)[1] for line in lines if line.startswith("site ")]


def behind(suite: Suite) -> dict[str, int | None]:
    """Return how many messages of each site are not copied yet, as programs read it."""
    status = json.loads(invoke(suite, "status", "--json").stdout)
    return {site["name"]: site["behind"] for one in status["streams"] for site in one["sites"]}


def is_connected(suite: Suite) -> bool:
    (node,) = json.loads(invoke(suite, "status", "--json").stdout)["nodes"]
    return bool(node["site_links"] == node["site_remotes"] == 1)


def checked(suite: Suite) -> tuple[str, str]:
    found = json.loads(invoke(suite, "check", "sites", "--json").stdout)
    return found["status"], "\n".join(one["text"] for one in found["findings"])


def test_a_site_that_was_never_seen_is_unknown_and_not_0_behind(
    processes: Processes, tmp_path: Path
) -> None:
    centre, branch = sites(processes, tmp_path, "centre", "branch")
    gateway = f"127.0.0.1:{free_port()}"
    connects(branch, gateway)

    assert "connected to 0 of 1 other sites" in invoke(branch, "status").output
    assert checked(branch)[0] == "WARNING"
    centre.start_broker(
        "--site", "centre", "--source", "branch", "--source", "nowhere", "--site-listen", gateway
    )
    assert behind(centre)["nowhere"] is None
    assert "nowhere: unknown, no contact since this broker started" in shown(centre)
    grade, text = checked(centre)
    assert grade == "WARNING"
    assert "LOGS from site nowhere is unknown" in text
    wait_until("the branch is connected", lambda: is_connected(branch), 60)
    assert checked(branch)[0] == "OK"


@pytest.mark.long  # nothing arrives for 15 s, and nats-server takes its time to ask again
@pytest.mark.timeout(540)
def test_a_site_whose_line_is_down_is_unknown_until_it_answers_again(
    processes: Processes, tmp_path: Path
) -> None:
    centre, branch, other = sites(processes, tmp_path, "centre", "branch", "other")
    gateway = f"127.0.0.1:{free_port()}"
    centre.start_broker("--site", "centre", "--site-listen", gateway)
    for suite in (branch, other):
        connects(suite, gateway)
    centre.administer("apply", "--site", "centre", "--source", "branch", "--source", "other")
    branch.publish("logs.p0.away01", b"a line\n")
    all_come = lambda: behind(centre) == {"branch": 0, "other": 0}  # noqa: E731
    wait_until("all is copied", all_come, 90, every=1)
    assert checked(centre)[0] == "OK"
    server = json.loads((branch.folder / "store/broker.json").read_text())["nats_server_pid"]

    os.kill(server, signal.SIGSTOP)  # as a line that is cut without a word
    try:
        is_unknown = lambda: behind(centre) == {"branch": None, "other": 0}  # noqa: E731
        wait_until("it is unknown", is_unknown, 40, every=1)
        reported, (grade, text) = shown(centre), checked(centre)
    finally:
        os.kill(server, signal.SIGCONT)

    assert sum(one.startswith("branch: unknown since 20") for one in reported) == 1
    assert any(one.endswith(", was 0 behind") for one in reported)
    assert "other: 0 behind" in reported
    assert grade == "WARNING"
    assert "LOGS from site branch is unknown since 20" in text
    wait_until("it answers again", all_come, 150, every=1)
    assert checked(centre)[0] == "OK"


@pytest.mark.long  # nats-server takes its time to ask another site again
@pytest.mark.timeout(540)
def test_lines_of_a_site_behind_a_firewall_reach_the_centre_once_and_in_order(
    processes: Processes, tmp_path: Path
) -> None:
    centre, branch = sites(processes, tmp_path, "centre", "branch")
    gateway = f"127.0.0.1:{free_port()}"
    settings = tmp_path / "centre.toml"
    settings.write_text(f'site = "centre"\nsite_listen = "{gateway}"\n')
    broker = centre.start_broker("--config", str(settings))
    buffer = connects(branch, gateway)
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

    # nats-server asks another site again after 40 s, then ever more rarely, up to every two minutes
    has_all(centre, branch, "away01", 130, broker, buffer)
    for suite, host, log in (
        *((suite, "away01", away) for suite in (branch, centre)),
        (centre, "near01", near),
    ):
        verdict = judge([log.read_bytes()], stored(suite, host))
        assert verdict.is_perfect, f"{host} at {suite.folder.name}: {verdict}"
    assert held(branch, "near01") == 0


@pytest.mark.timeout(540)
@pytest.mark.long
def test_a_second_site_goes_on_with_its_copy_when_the_first_is_lost(
    processes: Processes, tmp_path: Path
) -> None:
    first, second = sites(processes, tmp_path, "first", "second")
    gateway = f"127.0.0.1:{free_port()}"
    owners = (("site", "second"), ("host", "web01"), ("admin", "operator"))
    key, host, first_admin = (first.credential(*owner) for owner in owners)
    first.access = Access(nkey=first_admin)
    broker = first.start_broker("--site", "first", "--site-listen", gateway)
    copy = connects(second, gateway, "--mirror", "first", "--site-nkey", str(key))
    log = tmp_path / "app.log"
    append(log, 0, 3000)
    ship(first, "web01", log, "--config", str(host))
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
    stays = second.start_broker("--site", "second")  # without --mirror, as it was set
    assert second.stream()["config"]["subjects"] == ["logs.p0.>", "logs.p1.>"]
    assert stays.stop() == 0
    arguments = ["run", "--store-dir", second.folder / "store", "--listen", "127.0.0.1:0"]
    arguments += ["--http", "", "--partitions", "2", "--site", "second", "--mirror", "first"]
    again = second.start_program("logbroker", "mirror-again", arguments)
    assert again.wait(60) == 78
    assert "--mirror" in again.read_log()
