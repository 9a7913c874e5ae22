"""Hosts with nothing but the files of their credentials: lines flow while others are given, and whatever a bad host does."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from broker.wire.subjects import partition_of
from tests.journeys.hostile import BAD, CUT_OFF, DENIED, OPERATIONS, Attack, Operation
from tests.journeys.site import Site
from tests.support.oracle import judge
from tests.support.processes import Processes, wait_until

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(600)]

HONEST = ("web01", "web02")
OF_HOSTS = {f"logs.p{number}.{host}" for number in range(2) for host in (*HONEST, BAD)}
SOON = 30.0  # seconds in which a line comes on a busy machine, whatever the bad host does


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hostile")
    with Processes(folder) as programs:
        site = Site(folder, programs, HONEST, BAD)
        site.lines_arrive(90)
        yield site


def test_lines_flow_while_other_credentials_are_given_and_their_own_is_rotated(site: Site) -> None:
    # a server that reads its settings anew loses an answer now and then
    for number in range(10):
        for host in site.hosts:
            host.write(3000)
        site.credentials("add", "host", f"other{number}")
    site.credentials("add", "host", HONEST[0], "--force")
    rotated, *others = site.hosts
    rotated.shipper.kill()
    rotated.shipper.start()  # with its new secret

    site.lines_arrive(150)

    for host in site.hosts:
        assert host.received.read_bytes() == b"".join(host.lines)
    assert not any("waiting" in host.shipper.said() for host in others)
    assert "permissions violation" not in site.receiver.said()


def test_whatever_a_bad_host_does_honest_lines_arrive(
    site: Site, subtests: pytest.Subtests
) -> None:
    before = files(site)

    for name, operation in OPERATIONS.items():
        with subtests.test(name):
            done(site, name, operation)

    with subtests.test("every honest line is there once, and nothing is elsewhere"):
        for one in site.hosts:
            assert judge([b"".join(one.lines)], one.received.read_bytes()).is_perfect
        assert {path for path in files(site) - before if "escaped" in path.name} == set()
        seen = {one.name for one in site.output.iterdir() if not one.name.startswith(".")}
        assert seen == {*HONEST, BAD}

    for program, *words in (
        ("broker", "hosts", "--config", str(site.folder / "admin-ops.toml")),
        ("receiver", "status", "--config", str(site.folder / "receiver-all.toml")),
    ):
        with subtests.test(f"{program} {words[0]} says how things are"):
            process = site.start(f"{program}-{words[0]}", program, *words)
            assert process.wait(90) == 0, process.said()
            assert all(one.isprintable() or one == "\n" for one in process.said())


def done(site: Site, name: str, operation: Operation) -> None:
    """Have it done while honest hosts write on, and hold what came of it against what must."""
    kept = site.quarantined()
    with ExitStack() as stack:
        connect = partial(site.connect, f"host-{BAD}")
        attack = Attack(connect, site.port, partition_of(BAD, 2), stack)
        heard = operation(attack)
        site.lines_arrive(SOON)
    assert all(one.is_over for one in heard) or name != CUT_OFF
    assert name == DENIED or not any(
        "Permissions Violation" in e for one in heard for e in one.errors
    )
    assert site.subjects() <= OF_HOSTS
    expected = kept + attack.quarantined
    wait_until("they are there", lambda: site.quarantined() == expected, 30, [site.receiver])


def files(site: Site) -> set[Path]:
    """Return all files, but those of the bad host's own folder, where anything may be called anything."""
    return {path for path in site.folder.rglob("*") if site.output / BAD not in path.parents}
