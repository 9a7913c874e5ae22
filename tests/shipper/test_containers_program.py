"""The agent beside the kubelet and dockerd, killed at every point, with /var mounted read-only."""

import os
import random
import re
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.shipper.conftest import received
from tests.shipper.logs import ROOT
from tests.shipper.points import IN_MOVE, POINTS
from tests.shipper.runtimes import Container, Node, all_lines, by_container
from tests.support.processes import Process, Processes, wait_until

pytestmark = pytest.mark.nats


def start_agent(processes: Processes, node: Node, url: str, faults: Path) -> Process:
    """Start the agent of a node; as the superuser, with a view of it that nobody can write."""
    follow = [word for pattern in node.patterns for word in ("--file", pattern)]
    words = [sys.executable, "-m", "shipper", "--server", url, "--host", "node", *follow]
    words += ["--grace", "1s", "--round-size", "65536"]
    if os.geteuid() == 0:
        root = shlex.quote(str(node.root))
        mount = f"mount --bind {root} {root} && mount -o remount,bind,ro {root}"
        words = ["unshare", "-m", "sh", "-c", f"{mount} && exec {shlex.join(words)}"]
    environment = {"LOGSHIP_FAULTS": str(faults)}
    return processes.start("agent", words, environment=environment, folder=ROOT)


def write_and_rotate(containers: Iterable[Container]) -> None:
    """Write and rotate twice: the kubelet compresses the first of the files then."""
    for one in containers:
        for count in (3, 70):
            one.write(count)
            one.rotate()
        one.write(5)


@pytest.mark.parametrize("point", [point for point in POINTS if point not in IN_MOVE])
def test_every_line_of_every_container_arrives_once_after_a_kill_at_any_point(
    logs_url: str, processes: Processes, tmp_path: Path, point: str
) -> None:
    (faults := tmp_path / "faults").mkdir()
    node = Node(tmp_path / "var")
    every = [node.start_pod("web"), node.start_pod("db-0"), node.start_docker("proxy")]
    for one in every:
        one.write(90)
    agent = start_agent(processes, node, logs_url, faults)

    def has_all() -> bool:
        written = sum(one.written for one in every)
        return received(logs_url).count(b"\n") >= written or not agent.is_running()

    wait_until("all lines are there", has_all, 40)
    for passes in (0, 3):
        (faults / point).write_bytes(b"." * passes)
        agent.kill()
        write_and_rotate(every)
        every.append(node.start_pod("db-0", restarts=passes + 1))  # and its log before stays
        agent.start()
        for _ in range(4):
            if agent.is_running():
                write_and_rotate(every)
                wait_until("the lines arrive", has_all, 40)
        (faults / point).unlink(missing_ok=True)
        agent.kill()
    write_and_rotate(every)
    agent.start()
    wait_until("all lines are there", has_all, 40)

    assert by_container(received(logs_url)) == all_lines(*every)
    assert agent.stop(12) == 0


@pytest.mark.parametrize(
    ("lasting", "passing"), [(40, 30), pytest.param(1000, 600, marks=pytest.mark.long)]
)
def test_each_pod_of_many_that_live_shortly_is_read_to_its_end_or_reported(
    logs_url: str, processes: Processes, tmp_path: Path, lasting: int, passing: int
) -> None:
    node, chance = Node(tmp_path / "var"), random.Random(1)
    every = [node.start_pod(f"long-{number}") for number in range(lasting)]
    for one in every:
        one.write(2)
    agent = start_agent(processes, node, logs_url, tmp_path / "faults")
    wait_until("all are read", lambda: received(logs_url).count(b"\n") == 2 * lasting, 60)
    living: list[tuple[float, Container]] = []
    for number in range(passing):
        pod = node.start_pod(f"job-{number}")
        pod.write(3)
        every.append(pod)
        living.append((time.monotonic() + chance.choice((0.0, 0.5, 3.0)), pod))
        time.sleep(0.1)
        for _, ended in [one for one in living if one[0] < time.monotonic()]:
            ended.write(2)
            node.delete(ended)
        living = [one for one in living if one[1].log.exists()]
    for _, ended in living:
        node.delete(ended)
    every[0].write(1)

    def unread() -> set[str]:
        found, wanted = by_container(received(logs_url)), all_lines(*every)
        return {name for name, lines in wanted.items() if found.get(name) != lines}

    def is_judged() -> bool:
        log = agent.read_log()
        counts = ["0", *re.findall(r"(\d+) that came were deleted or replaced before", log)]
        gone = re.findall(r"WARNING.* (is gone|was truncated).* not read", log)
        return len(unread()) == int(counts[-1]) + len(gone)

    wait_until("each pod is read or reported", is_judged, 60, [agent])
    assert {name.partition("-")[0] for name in unread()} <= {"job"}
    assert agent.stop(12) == 0
