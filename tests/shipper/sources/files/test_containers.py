"""Containers' files as the kubelet and dockerd rotate, compress and remove them."""

import os
import shutil
from pathlib import Path

import pytest

from shipper.sources.acknowledged import Acknowledged
from shipper.sources.notices import NoticeKind
from tests.descriptors import held_here
from tests.shipper.host import SECOND, Host
from tests.shipper.runtimes import Node, all_lines, by_container
from tests.shipper.shipped import origins
from tests.shipper.sources.files.conftest import MakeHost

DAY = 86_400 * SECOND


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "log/containers").mkdir(parents=True)
    return Node(tmp_path)


@pytest.fixture
def host(make_host: MakeHost, node: Node) -> Host:
    """Return a host that follows containers of both kinds."""
    return make_host(*node.patterns)


@pytest.mark.parametrize("is_down", [False, True], ids=["while it runs", "while it does not"])
@pytest.mark.parametrize("kind", ["kubelet", "dockerd"])
async def test_what_was_rotated_before_the_first_start_is_not_read_when_it_is_compressed(
    host: Host, node: Node, kind: str, is_down: bool
) -> None:
    container = node.start_pod("web") if kind == "kubelet" else node.start_docker("web")
    for _ in range(2):
        container.write(50)
        container.rotate()
    old = container.written
    for path in container.log.parent.iterdir():
        os.utime(path, ns=(then := path.stat().st_mtime_ns - DAY, then))
    container.write(40)
    await host.ship()

    container.write(1)
    container.rotate()  # the kubelet compresses only now what was rotated before
    container.write(30)
    await (host.restart_with_saved_positions() if is_down else host.ship())
    container.rotate()
    container.write(1)
    await host.ship_out()

    assert host.shipped == container.lines(old, container.written)
    assert host.reported(NoticeKind.UNREAD) == []


async def test_a_container_that_came_while_no_agent_ran_is_read_from_its_first_file(
    host: Host, node: Node
) -> None:
    (first := node.start_pod("web")).write(3)
    await host.ship()
    later = [node.start_pod("job"), node.start_docker("job")]
    for one in (*later, *later):
        one.write(60)
        one.rotate()
        one.write(60)

    await host.restart_with_saved_positions()
    await host.ship_out()

    assert by_container(host.shipped) == {"web.u1.0": first.lines(0, 3)} | {
        one.name: one.lines(0, one.written) for one in later
    }


async def test_a_pod_is_read_to_its_end_though_its_link_dangles_and_its_folder_is_gone(
    host: Host, node: Node
) -> None:
    pod = node.start_pod("web")
    pod.write(10)
    await host.ship()
    pod.write(10)
    assert pod.link is not None
    node.delete(pod)
    pod.link.symlink_to(pod.log)

    await host.ship_out()

    assert by_container(host.shipped) == all_lines(pod)


async def test_a_pod_deleted_while_no_agent_ran_is_reported_with_its_position(
    host: Host, node: Node
) -> None:
    pod = node.start_pod("web")
    pod.write(10)
    await host.ship()
    pod.write(10)
    node.delete(pod)

    await host.restart_with_saved_positions()
    await host.scan()

    (lost,) = host.reported(NoticeKind.UNREAD)
    assert lost.path == str(pod.link)
    assert f"behind byte {len(pod.lines(0, 10))} is lost, if anything was" in lost.text


async def test_links_into_a_folder_that_is_not_mounted_are_named(host: Host, node: Node) -> None:
    pod, docker = node.start_pod("web"), node.start_docker("db")
    docker.write(1)
    shutil.rmtree(node.root / "log/pods")

    await host.ship()

    (trouble,) = host.follower.troubles
    assert trouble.path == node.patterns[0]
    assert f"{pod.link} to {pod.log}; is the folder mounted here?" in trouble.text


async def test_pods_that_come_and_go_leave_no_positions_files_or_watches_behind(
    host: Host, node: Node
) -> None:
    acknowledged, lines = Acknowledged(), 0
    host.follower.stored = acknowledged.position
    (long := node.start_pod("long")).write(1)
    before = held_here()
    for number in range(0, 600, 20):
        pods = [node.start_pod(f"job-{number + n}") for n in range(20)]
        for one in (long, *pods):
            one.write(1)
        for _ in range(3):  # read, deleted, gone
            await host.ship()
            acknowledged.add_found(host.follower)
            for origin in origins(host.blocks):
                acknowledged.advance(origin, 1, "LOGS")
            lines, _ = lines + len(host.blocks), host.blocks.clear()
            host.later += 6 * SECOND
            for one in pods:
                if one.log.exists():
                    node.delete(one)
        await acknowledged.forget_gone(host.follower, host.clock())

    assert lines == 600 + 30
    assert len(host.follower.files()) == 1
    assert len(acknowledged.positions.files) <= 201
    assert len(acknowledged.positions.encode()) < 65536
    assert len(host.follower.deleted_files) <= 220
    assert held_here() - before < 10
