"""logreceiver on a real standalone cluster whose machines have nothing of ours, through the loss of each part of it."""

from pathlib import Path

import pytest

from broker.app.exits import Exit
from tests.receiver.cluster import Cluster, can_be_blind
from tests.receiver.scene import Scene
from tests.support.processes import Process, Processes, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.nats, pytest.mark.timeout(1440)]

PATIENCE = 150  # seconds; a cluster takes a minute to start where a machine is busy otherwise


def started(scene: Scene, cluster: Cluster, name: str) -> Process:
    return scene.receiver(
        name,
        *("--master", cluster.url, "--executor-python", str(cluster.python)),
        *("--rotate-size", "20KB"),
    )


def kill_a_worker(scene: Scene, worker: Process) -> None:
    scene.publish(300)
    worker.kill()  # with its executor and the tasks in it
    scene.publish(300)
    worker.start()


@pytest.mark.long
def test_all_workers_the_master_and_the_driver_are_killed_and_no_line_is_lost_or_repeated(
    scene: Scene, processes: Processes, tmp_path: Path
) -> None:
    cluster = Cluster(processes, tmp_path)
    scene.publish(200)
    receiver = started(scene, cluster, "first")
    scene.wait_for_all(receiver, seconds=PATIENCE)

    for worker in cluster.workers:
        kill_a_worker(scene, worker)
    scene.wait_for_all(receiver, seconds=PATIENCE)
    cluster.master.kill()
    scene.publish(300)
    cluster.master.start()
    scene.wait_for_all(receiver, seconds=PATIENCE)
    receiver.kill()
    scene.publish(300)
    cluster.wait_for_workers(len(cluster.workers))
    second = started(scene, cluster, "second")
    scene.wait_for_all(second, seconds=PATIENCE)

    assert second.stop(12) == Exit.DONE


@pytest.mark.long
@pytest.mark.skipif(not can_be_blind(), reason="no rights to give a process mounts of its own")
def test_executors_that_do_not_see_the_output_are_named(
    scene: Scene, processes: Processes, tmp_path: Path
) -> None:
    scene.output.mkdir()
    cluster = Cluster(processes, tmp_path, hidden=scene.output)
    scene.publish(20)

    receiver = started(scene, cluster, "receiver")

    is_told = lambda: "is not the folder" in receiver.said()  # noqa: E731
    wait_until("it is told", is_told, PATIENCE, [receiver])
    assert receiver.stop(12) == Exit.DONE
