"""logreceiver with a real Spark: killed, taken over, reloaded, stopped."""

import gzip
import json
import os
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from nats_logship.app.exits import Exit
from nats_logship.app.faults import VARIABLE
from nats_logship.app.files import FOLDER_ID
from nats_logship.client.access import without_password
from nats_logship.wire.subjects import partition_of
from tests.conftest import Server
from tests.manager import Manager
from tests.pages import page
from tests.partitions import change_partitions
from tests.receiver.partition import ask
from tests.receiver.scene import Scene
from tests.support.commands import run_command
from tests.support.processes import Process, Processes, proc, wait_until
from tests.support.received import read_received

pytestmark = [pytest.mark.spark, pytest.mark.nats]

_NOISE = ("Traceback", "never retrieved", "was destroyed", "Exception in", "ERROR asyncio")


def is_calm(receiver: Process) -> None:
    words = receiver.log.read_text()
    assert not [noise for noise in _NOISE if noise in words], words


def has_asked(scene: Scene) -> bool:
    """Whether a receiver has asked the broker of a scene anything."""
    answer = ask(scene.url, lambda broker: broker.request("$SYS.REQ.ACCOUNT.PING.CONNZ"))
    connections = json.loads(answer.data)["data"]["connections"]
    return any(one["in_msgs"] for one in connections if one["name"].startswith("logreceiver"))


def test_once_receives_waiting_lines_reports_gaps_and_ends(scene: Scene) -> None:
    scene.shipped(0, b"received\n")
    taken = scene.shipped(9, b"taken away\n")
    scene.shipped(20, b"after that\n")
    scene.publish(300)
    scene.api("STREAM.MSG.DELETE.LOGS", {"seq": taken})
    receiver = scene.receiver("receiver", "--once", "--rotate-size", "2KB")

    assert receiver.wait(180) == 0, receiver.last_output()

    assert scene.received() == scene.expected()
    assert scene.committed() == scene.last + 1
    is_calm(receiver)
    assert read_received(scene.output, "web01") == b"received\nafter that\n"
    [gap] = scene.partition(0).read_gaps()
    found = (gap["host"], gap["file"], gap["start"], gap["end"])
    assert found == ("web01", "/var/log/a", 9, 20)
    log = receiver.log.read_text()
    assert "gap of 11 bytes: host web01, file '/var/log/a'" in log
    assert "INFO driver: received 302 lines, 58.6 KiB; all is committed, nothing waits" in log
    assert log.count("INFO") == 2, log


def test_a_folder_that_is_taken_away_while_it_starts_is_named(
    own_broker: Server, processes: Processes, tmp_path: Path
) -> None:
    own_broker.stop()
    scene = Scene(own_broker.url, processes, tmp_path)
    receiver = scene.receiver("receiver")
    mark = scene.output / FOLDER_ID
    wait_until("it has its folder", mark.exists, 60, [receiver])
    wait_until("it waits", lambda: "no broker at" in receiver.read_log(), 60, [receiver])
    mark.unlink()
    own_broker.start()

    assert receiver.wait(150) == Exit.FAILED, receiver.last_output()
    reason = f"cannot use {mark}: No such file or directory; choose --output and --state-dir"
    assert last_line(receiver) == f"logreceiver: {reason}"
    is_calm(receiver)


def test_a_receiver_that_lost_a_partition_goes_on_with_its_others(scene: Scene) -> None:
    first = scene.receiver("first", "--listen", "127.0.0.1:0")
    scene.publish(50)
    scene.wait_for_all(first)
    second = scene.partition(1, "second")
    offset = second.take_over()
    scene.wait_for_log(first, "this one goes on with its others")
    lost = files_of(scene.output, 1)

    scene.publish(50)
    second.receive(offset.next, offset.epoch)

    def has_come() -> bool:
        there = scene.received()
        for path in second.output.glob("host?.log"):
            there[path.stem] = lost[path.name] + path.read_bytes()
        return there == scene.expected()

    wait_until("all lines have come", has_come, 90, [first])
    assert files_of(scene.output, 1) == lost
    names = scene.api("CONSUMER.NAMES.LOGS")["consumers"]
    assert not [name for name in names if name.endswith("p1-1")], "its wake-up consumer"
    (code, health), (_, metrics) = page(first, "/healthz"), page(first, "/metrics")
    assert (code, "partition 1 was taken over by" in health) == (200, True)
    assert 'logreceiver_lost{partition="1"} 1.0' in metrics
    assert 'logreceiver_lost{partition="0"} 0.0' in metrics

    scene.partition(0, "third").take_over()

    assert first.wait(240) == Exit.CONFIGURATION
    said = first.log.read_text()
    assert said.count("partition 1: ") == said.count("partition 0: ") == 1, "lost"
    [ended] = [line for line in said.splitlines() if line.startswith("logreceiver")]
    assert "partition 0: " in ended
    assert ended.endswith("; this receiver stops")
    assert files_of(scene.output, 1) == lost
    is_calm(first)


def files_of(output: Path, partition: int) -> dict[str, bytes]:
    """Return what there is of a partition: the files of its hosts, and its state."""
    files = output.glob("host?.log*")
    hosts = [path for path in files if partition_of(path.name[:5], 2) == partition]
    state = (output / ".logreceiver").glob(f"p{partition}.*")
    return {path.name: path.read_bytes() for path in (*hosts, *state)}


def test_a_standby_takes_over_only_once_the_owner_is_killed(scene: Scene, manager: Manager) -> None:
    owner = scene.receiver("owner")
    scene.publish(50)
    scene.wait_for_all(owner)
    standby = scene.receiver(
        *("standby", "--standby", "--takeover-after", "2s", "--listen", "127.0.0.1:0"),
        environment={"NOTIFY_SOCKET": manager.address},
    )
    behind = f"standing by behind {socket.gethostname()}:{owner.pid}: "
    told = lambda: manager.has_received(f"STATUS={behind}0; {behind}1")  # noqa: E731
    wait_until("it says behind whom", told, 150, [owner, standby])
    shown = run_command("logreceiver", "status", "--server", scene.url)
    assert shown.count(f":{owner.pid}, standby: {socket.gethostname()}:{standby.pid}") == 2
    scene.publish(50)
    scene.wait_for_all(owner, standby)
    assert manager.has_received("READY=1")
    assert page(standby, "/healthz") == (200, "ok\n")
    assert "epoch 2" not in standby.read_log()

    owner.kill()
    scene.publish(50)

    # by the owner's last task, if it lived long enough, or by the standby
    scene.wait_for_all(standby)
    scene.wait_for_log(standby, "epoch 2")
    for number in (0, 1):
        scene.partition(number, "newest").take_over()
    scene.wait_for_log(standby, "by again")
    assert standby.stop() == 0
    is_calm(standby)


@pytest.mark.parametrize(
    "is_standby", [False, pytest.param(True, marks=pytest.mark.long)], ids=["owner", "standby"]
)
def test_a_receiver_of_all_receives_new_and_left_partitions(scene: Scene, is_standby: bool) -> None:
    standby = ["--standby"] if is_standby else []
    receiver = scene.receiver("receiver", "--rotate-size", "100KB", "--compress", "none", *standby)
    scene.publish(20)
    scene.wait_for_all(receiver)

    def wait_for(line: bytes) -> None:
        files = lambda: scene.output.glob("web*.log")  # noqa: E731
        has_come = lambda: any(line in path.read_bytes() for path in files())  # noqa: E731
        wait_until(f"{line!r} is received", has_come, 150, [receiver])

    ask(scene.url, lambda broker: change_partitions(broker, 4))
    scene.partition(3).lines("web3", b"in the new one\n")
    wait_for(b"in the new one\n")
    assert "receiving partitions 0 to 3 into" in receiver.read_log()
    assert not scene.partition(3).offset().released

    ask(scene.url, lambda broker: change_partitions(broker, 2))
    scene.partition(3).lines("web3", b"late\n")
    wait_for(b"late\n")
    scene.publish(2000, 2000)
    assert receiver.stop(20) == 0, receiver.last_output()
    scene.partition(2).lines("web2", b"while it was down\n")
    receiver.start()
    wait_for(b"while it was down\n")
    scene.wait_for_all(receiver)
    assert receiver.stop(20) == 0
    is_calm(receiver)


def last_line(receiver: Process) -> str:
    """Return the one line that says why it ended."""
    lines = receiver.log.read_text().splitlines()
    return next(line for line in reversed(lines) if line.startswith("logreceiver:"))


def java_of(receiver: Process) -> int:
    [java] = [pid for pid in receiver.tree() if proc(pid, "comm").strip() == "java"]
    return java


def test_killed_drivers_and_workers_lose_no_line(scene: Scene, tmp_path: Path) -> None:
    trigger = tmp_path / "appended"
    scene.publish(20)
    for point in ("claimed", "report_received"):
        (tmp_path / point).touch()
    one_worker = ("--master", "local[1]")  # for both partitions
    receiver = scene.receiver("receiver", *one_worker, environment={VARIABLE: str(tmp_path)})
    for _ in range(2):
        assert receiver.wait(150) == -signal.SIGKILL, receiver.last_output()
        receiver.start()
    scene.wait_for_all(receiver)

    def is_logged() -> bool:
        if "is blocked" in receiver.read_log():
            return True
        if trigger.exists():  # no worker died: the batch was written before the trigger existed
            scene.publish(1)
        trigger.touch()
        return False

    trigger.touch()  # before there is anything to write
    scene.publish(20)
    wait_until("it is logged", is_logged, 150, [receiver])
    trigger.unlink(missing_ok=True)

    scene.wait_for_all(receiver)
    assert "is blocked, its lines wait in the stream: spark: " in receiver.log.read_text()
    assert receiver.stop(20) == 0
    is_calm(receiver)


def test_a_receiver_whose_jvm_does_not_answer_ends_in_time(scene: Scene, tmp_path: Path) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (home / "bin" / "java").write_text("#!/bin/sh\nexec sleep 600\n")
    (home / "bin" / "java").chmod(0o755)
    receiver = scene.receiver("receiver", environment={"JAVA_HOME": str(home)})
    wait_until("it waits for Java", lambda: len(receiver.tree()) == 2, 150, [receiver])
    wait_until("it has asked the broker", lambda: has_asked(scene), 60, [receiver])

    code = receiver.stop(20)

    assert code == 0
    assert receiver.tree() == []
    assert list(tmp_path.rglob("logreceiver-*")) == []
    is_calm(receiver)


@pytest.mark.long
def test_a_receiver_ends_in_time_though_a_worker_or_jvm_hangs(scene: Scene, tmp_path: Path) -> None:
    trigger = tmp_path / "appended.stop"
    receiver = scene.receiver("receiver", environment={VARIABLE: str(tmp_path)})
    scene.publish(20)
    scene.wait_for_all(receiver)
    trigger.touch()
    scene.publish(20)
    wait_until("it hangs", lambda: not trigger.exists(), 90, [receiver])

    assert receiver.stop(12) == 0, receiver.last_output()
    assert "1 partition did not come to the end of a batch" in receiver.log.read_text()
    is_calm(receiver)

    receiver.start()
    scene.wait_for_log(receiver, "receiving partition", 2)
    scene.wait_for_all(receiver)
    os.kill(java_of(receiver), signal.SIGSTOP)
    assert receiver.stop(12) == 0, receiver.last_output()
    wait_until("nothing is left", lambda: not receiver.tree(), 30)


def test_damaged_partitions_or_a_killed_jvm_end_it_with_one_line(scene: Scene) -> None:
    receiver = scene.receiver("receiver")
    scene.publish(20)
    scene.wait_for_all(receiver)
    assert receiver.stop() == 0

    scene.api("STREAM.PURGE.KV_LOGS_OFFSETS", {"filter": "$KV.LOGS_OFFSETS.p0"})
    (scene.output / ".logreceiver" / "p1.db").unlink()
    adopt_as_advised(scene, receiver, "key p0 of", "p1.db is gone")
    scene.publish(20)
    receiver.start()
    scene.wait_for_all(receiver)

    os.kill(java_of(receiver), signal.SIGKILL)

    scene.publish(20)  # at the latest its lines need it
    assert receiver.wait(150) == Exit.FAILED, receiver.last_output()
    assert "Java process has died" in last_line(receiver)
    is_calm(receiver)
    receiver.start()
    scene.wait_for_all(receiver)


def adopt_as_advised(scene: Scene, receiver: Process, *reasons: str) -> None:
    """Start a receiver that refuses, and run the command that it names."""
    receiver.start()
    assert receiver.wait(150) == Exit.CONFIGURATION, receiver.last_output()
    is_calm(receiver)
    words = last_line(receiver)
    assert all(reason in words for reason in reasons), words
    [command] = re.findall("`logreceiver ([^`]*)`", words)
    folders = f"--output {scene.output} --state-dir {scene.output}/.logreceiver"
    shown = without_password(scene.url)
    assert command == f"offsets adopt --partition 0,1 {folders} --server {shown}"
    run_command("logreceiver", *command.replace(shown, scene.url).split(), "--yes")


def status(scene: Scene) -> dict[str, Any]:
    words = ["status", "--json", "--server", scene.url, "--output", scene.output]
    return dict(json.loads(run_command("logreceiver", *words))["partitions"][0])


def test_a_receiver_reports_to_its_manager(scene: Scene, manager: Manager, tmp_path: Path) -> None:
    config = tmp_path / "receiver.toml"
    config.write_text('keep = 3\nlog_level = "info"\n')
    partition = scene.partition(0)
    partition.lines("web01", b"one\n", b"two\n")
    receiver = scene.receiver(
        *("receiver", "--config", str(config), "--listen", "127.0.0.1:0", "--compress", "gzip"),
        environment={"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000000"},
    )

    def wait_for_notice(text: str) -> None:
        wait_until(text, lambda: manager.has_received(text), 150, [receiver])

    wait_for_notice("READY=1")
    counted = lambda: 'lines_total{partition="0"} 2.0' in page(receiver, "/metrics")[1]  # noqa: E731
    wait_until("has counted", counted, 90)
    partition.lines("web01", b"three\n")
    wait_for_notice("STATUS=2 partitions, ")
    caught_up = lambda: partition.read("web01").count(b"\n") == 3  # noqa: E731
    wait_until("has received all", caught_up, 150, [receiver])
    shown = status(scene)
    config.write_text('keep = 4\ncommit_every = "2s"\nrotate_every = "1h"\n')
    os.kill(receiver.pid, signal.SIGHUP)
    wait_for_notice("RELOADING=1")
    scene.wait_for_log(receiver, "settings reloaded")
    config.write_text("keep = -1\n")
    os.kill(receiver.pid, signal.SIGHUP)
    scene.wait_for_log(receiver, "keeping current settings")
    for pid in receiver.tree():  # as `killall` does: none of them ends by it
        os.kill(pid, signal.SIGUSR1)
    closed = scene.output / "web01.log.000001.gz"
    wait_until("closes and compresses its files", closed.exists, 60, [receiver])

    assert page(receiver, "/healthz") == (200, "ok\n")
    assert gzip.decompress(closed.read_bytes()) == b"one\ntwo\nthree\n"
    assert (shown["running"], shown["blocked"], shown["lines_per_second"] >= 0) == (
        True,
        None,
        True,
    )
    told = receiver.read_log().replace("-", "_")
    assert "changed: keep, commit_every; needs a restart: rotate_every" in told
    assert manager.has_received("WATCHDOG=1")
    assert receiver.stop(20) == 0
    assert status(scene)["running"] is False
    assert manager.has_received("STOPPING=1")
    is_calm(receiver)
