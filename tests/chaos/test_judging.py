"""What speaks against the suite: of each kind of harm to received files the finding that names it, and what no file shows."""

from pathlib import Path

import pytest

from receiver.consume.assignment import Done, Ending, Report
from receiver.meter import Meter
from receiver.storage.findings import Finding, FindingKind
from receiver.storage.tables import gap_report
from tests.chaos.judging import judged, repeats
from tests.chaos.program import Program, Supervisor
from tests.chaos.shape import Shape
from tests.chaos.world import Host, World
from tests.support.processes import Process, Processes

HOSTS = ("web01", "db.example.net")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return one whose hosts have written, and whose receiver has received all of it."""
    (tmp_path / "logs").mkdir()
    world = World(tmp_path, Shape(), Processes(tmp_path / "logs"), Supervisor())
    world.output.mkdir(parents=True)
    for number, name in enumerate(HOSTS):
        folder = tmp_path / "hosts" / name
        writing = world.writing(name, number, folder / "logs")
        for _ in range(20):
            writing.tick(0.1)
        writing.finish()
        shipper = Program(Process(name, (), tmp_path / "log", {}), "shipper")  # it never runs
        host = Host(name, "h1", folder / "logs", writing, shipper)
        world.hosts.append(host)
        received = b"".join(host.sources()).splitlines(keepends=True)
        (world.output / f"{name}.log.000001").write_bytes(b"".join(received[:9]))
        (world.output / f"{name}.log").write_bytes(b"".join(received[9:]))
    return world


def test_what_was_received_whole_has_no_finding(world: World) -> None:
    assert judged(world).findings == []


def test_harm_to_lines_and_files_is_found_under_the_name_of_its_host(world: World) -> None:
    live = world.output / f"{HOSTS[1]}.log"
    live.write_bytes(live.read_bytes() + b"of somebody else\n")
    (world.output / f"{HOSTS[0]}.log.000001").rename(world.output / f"{HOSTS[0]}.log.000001.zst")

    unread, foreign = judged(world).findings

    assert unread.startswith(f"{HOSTS[0]}: what was received cannot be read")
    assert foreign.startswith(f"{HOSTS[1]}: ")
    assert " 0 torn, 1 foreign" in foreign


def test_a_gap_and_a_loss_that_are_told_where_nothing_is_lost_are_findings(world: World) -> None:
    told = (
        '{"kind":"gap","host":"web01","file_id":"f1","start":10,"end":30}\n'
        '{"kind":"loss","host":"web01","after":3,"sequence":7}\n'
    )
    (world.output / gap_report(1)).write_text(told, "utf-8")

    gap, loss = judged(world).findings

    assert gap.startswith("a gap is told, and nothing was lost: ")
    assert loss.startswith("a loss is told, and nothing was lost: ")


def test_a_receiver_that_had_to_pass_over_lines_tells_on_the_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    finding = Finding(FindingKind.REPEAT, "web01", "/var/log/app.log", "f1", 10, 30, 7, 0)
    done = Done(0, 1, 8, findings=(finding,))
    Meter(lambda: 0).expect(0).done(Report(done, 1, Ending.SILENCE))
    (tmp_path / "receiver-one.log").write_text(caplog.text, "utf-8")
    (tmp_path / "receiver-two.log").write_text("nothing to tell\n", "utf-8")

    found = repeats(tmp_path)

    assert len(found) == 1
    assert found[0].startswith("receiver-one was sent lines again 1 times: repeat of 20 bytes")
