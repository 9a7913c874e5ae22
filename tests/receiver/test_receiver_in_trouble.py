"""logreceiver as a program whose workers, JVM or state are taken from it: told in a line, ended in time, nothing lost."""

import os
import signal
import time
from pathlib import Path

import pytest

from broker.app.exits import Exit
from broker.app.faults import VARIABLE
from tests.receiver.test_receiver_program import Scene, is_calm
from tests.support.processes import Process, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.nats]


def last_line(receiver: Process) -> str:
    """Return the one line that says why it ended."""
    [line] = [
        line for line in receiver.log.read_text().splitlines() if line.startswith("logreceiver:")
    ][-1:]
    return line


def java_of(receiver: Process) -> int:
    [java] = [
        pid
        for pid in receiver.tree()
        if Path(f"/proc/{pid}/comm").read_text("ascii").strip() == "java"
    ]
    return java


def test_a_worker_that_is_killed_again_and_again_blocks_its_partition_until_it_lives(
    scene: Scene, tmp_path: Path
) -> None:
    trigger = tmp_path / "appended"
    receiver = scene.receiver("receiver", environment={VARIABLE: str(tmp_path)})
    scene.publish(20)
    scene.wait_for_all(receiver)

    def is_told() -> bool:
        if "is blocked" in receiver.said():
            return True
        if (
            trigger.exists()
        ):  # nobody died: the last batch may have been written before the trigger was there again
            scene.publish(1)
        trigger.touch()
        return False

    trigger.touch()  # before there is anything to write: a batch that was quicker would kill nobody
    scene.publish(20)
    wait_until("it is told", is_told, 150, [receiver])
    trigger.unlink(missing_ok=True)

    scene.wait_for_all(receiver)
    assert "is blocked, its lines wait in the stream: spark: " in receiver.log.read_text()
    assert receiver.stop(10) == 0
    is_calm(receiver)


def test_told_to_end_while_its_jvm_does_not_answer_it_ends_in_time_and_leaves_nothing(
    scene: Scene, tmp_path: Path
) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (home / "bin" / "java").write_text("#!/bin/sh\nexec sleep 600\n")
    (home / "bin" / "java").chmod(0o755)
    receiver = scene.receiver("receiver", environment={"JAVA_HOME": str(home)})
    wait_until("it waits for Java", lambda: len(receiver.tree()) == 2, 150, [receiver])

    code = receiver.stop(10)

    assert code == 0
    assert receiver.tree() == []
    assert list(tmp_path.rglob("logreceiver-*")) == []
    is_calm(receiver)


@pytest.mark.long
def test_a_worker_or_a_jvm_that_hangs_is_left_and_the_end_is_in_time(
    scene: Scene, tmp_path: Path
) -> None:
    trigger = tmp_path / "appended.stop"
    hangs = {VARIABLE: str(tmp_path)}
    receiver = scene.receiver("receiver", environment=hangs)
    scene.publish(20)
    scene.wait_for_all(receiver)
    trigger.touch()
    scene.publish(20)
    wait_until("it hangs", lambda: not trigger.exists(), 90, [receiver])

    began = time.monotonic()
    assert receiver.stop(12) == 0, receiver.last_words()
    assert time.monotonic() - began < 12
    assert "1 partitions did not come to the end of a batch" in receiver.log.read_text()
    is_calm(receiver)

    receiver.start()
    scene.wait_for_all(receiver)
    os.kill(java_of(receiver), signal.SIGSTOP)
    assert receiver.stop(12) == 0, receiver.last_words()
    wait_until("nothing is left", lambda: not receiver.tree(), 30)


def test_a_killed_jvm_and_a_store_taken_away_end_it_with_a_line_each(scene: Scene) -> None:
    receiver = scene.receiver("receiver")
    scene.publish(20)
    scene.wait_for_all(receiver)

    os.kill(java_of(receiver), signal.SIGKILL)

    scene.publish(20)  # at the latest its lines need it
    assert receiver.wait(90) == Exit.FAILED, receiver.last_words()
    assert "Java process has died" in last_line(receiver)
    is_calm(receiver)

    (scene.output / ".logreceiver" / "p0.db").unlink()
    receiver.start()
    assert receiver.wait(180) == Exit.CONFIGURATION, receiver.last_words()
    assert "p0.db is gone" in last_line(receiver)
    is_calm(receiver)
