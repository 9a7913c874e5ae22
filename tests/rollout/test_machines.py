"""The operator's guide on booted machines: a partition moves, and machines that are lost are replaced, all under traffic."""

import subprocess
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from tests.rollout.field import LOGS, MARKS, WHEELHOUSE, Field, laid_out, received
from tests.support.oracle import Verdict, judge
from tests.support.processes import wait_until
from tests.support.received import read_received
from tests.support.traffic import Traffic
from tests.systemd.machine import Machine

pytestmark = MARKS
VARIABLES = {
    "logship_install_wheelhouse": WHEELHOUSE,
    "logship_broker_settings": {"partitions": 2},
    "logship_shipper_settings": {"file": [f"/{path}" for path in LOGS]},
}
GROUPS = {
    "logship_brokers": ["broker"],
    "logship_receivers": ["logs1"],
    "logship_shippers": ["web01", "web02"],  # of partitions 0 and 1
}
OUTPUT = "var/log/logship"
APPLICATION = LOGS[-1]


def test_a_partition_moves_to_another_machine_which_is_lost_with_its_disk_and_replaced(
    tmp_path: Path,
) -> None:
    names = ["broker", "logs1", "logs2", "web01", "web02"]
    with laid_out(tmp_path / "field", names) as field:
        broker, logs1, logs2, web01, web02 = field.machines.values()
        field.inventory(GROUPS, VARIABLES, {"logs1": instance("first", 0, 1)})
        field.play("site.yml")

        with Traffic([web01.disk / APPLICATION, web02.disk / APPLICATION], 100):
            wait_until("lines flow", lambda: has_lines(logs1, "web02"), 60)
            groups = GROUPS | {"logship_receivers": ["logs1", "logs2"]}
            own = {"logs1": instance("first", 0), "logs2": instance("second", 1)}
            field.inventory(groups, VARIABLES, own)
            field.play("site.yml")
            wait_until("lines flow there", lambda: has_lines(logs2, "web02"), 60)
        received(lambda: verdict(web01, [logs1], "web01"))
        received(lambda: verdict(web02, [logs1, logs2], "web02"))
        assert logs2.journal().count("files begin here at sequence") == 1
        assert not has_lines(logs2, "web01")

        with Traffic([web01.disk / APPLICATION, web02.disk / APPLICATION], 100, seed=2):
            field.boot("logs2")
            field.wait()
            admin = "--config /etc/credstore/logbroker-admin.toml"
            broker.told(f"logreceiver offsets set --to earliest --yes --partition 1 {admin}")
            field.play("site.yml")
        received(lambda: verdict(web01, [logs1], "web01"))
        received(lambda: verdict(web02, [field.machines["logs2"]], "web02"))


def test_a_host_is_set_up_anew_under_its_name_and_a_receiver_goes_on_elsewhere_with_its_files(
    tmp_path: Path,
) -> None:
    with laid_out(tmp_path / "field", ["broker", "logs1", "web01"]) as field:
        broker = field.machines["broker"]
        groups = GROUPS | {"logship_shippers": ["broker", "web01"]}
        field.inventory(groups, VARIABLES | {"logship_receiver_settings": {"output": "/srv/logs"}})
        field.play("site.yml")

        with Traffic([broker.disk / APPLICATION], 100):
            lost = _lose_a_host(field, "web01")
            with Traffic([field.machines["web01"].disk / APPLICATION], 100, seed=2):
                before = _carry_a_receiver(field, "logs1", tmp_path / "carried")
                field.play("site.yml")
        assert field.machines["logs1"].told("id -u logreceiver") != before
        received(lambda: verdict(broker, [field.machines["logs1"]], "broker", "srv/logs"))
        received(lambda: _verdict_of_both(lost, field))
        shipped = _begun(lost, received_of(field, "web01"))[-1].count(b"\n")
        assert 0 < shipped < lost[-1].count(b"\n") < shipped + 400  # two seconds, and some


def _lose_a_host(field: Field, name: str) -> list[bytes]:
    """Lose a host while it writes, and boot one of its name; return what it had written, two seconds of it to nobody."""
    machine = field.machines[name]
    log = machine.disk / APPLICATION
    with Traffic([log], 100) as traffic:
        arrives = "grep -q ^log/app.log /srv/logs/web01.log"
        wait_until("lines flow", lambda: field.machines["logs1"].does(arrives), 60)
        machine.told("ip link set host0 down")
        lines = lambda: traffic.written[log].count(b"\n")  # noqa: E731
        until = lines() + 200
        wait_until("more is written", lambda: lines() > until, 30)
    written = [(machine.disk / path).read_bytes() for path in LOGS]
    field.boot(name)
    field.wait()
    return written


def _carry_a_receiver(field: Field, name: str, carried: Path) -> str:
    """Kill a receiver, and take its files, its state among them, to a machine in its place; return its user's number."""
    old = field.machines[name]
    number = old.told("id -u logreceiver")
    old.told("systemctl kill -s KILL logreceiver@all; systemctl stop logreceiver@all")
    subprocess.run(["cp", "-a", old.disk / "srv/logs", carried], check=True)
    field.boot(name)
    field.wait()
    new = field.machines[name]
    new.told("useradd --system other")  # so that the receiver's user has another number there
    subprocess.run(["cp", "-a", carried, new.disk / "srv/logs"], check=True)
    return number


def _verdict_of_both(lost: list[bytes], field: Field) -> Verdict:
    """Judge the lines of a host that was set up anew: of the lost machine as far as they came, of the new one all."""
    lines = received_of(field, "web01")
    now = [(field.machines["web01"].disk / path).read_bytes() for path in LOGS]
    return judge([*_begun(lost, lines), *now], lines)


def _begun(lost: list[bytes], lines: bytes) -> list[bytes]:
    """Return what lost files begin with that was received."""
    there = frozenset(lines.split(b"\n"))
    return [
        b"".join(line + b"\n" for line in takewhile(there.__contains__, text.split(b"\n")[:-1]))
        for text in lost
    ]


def instance(name: str, *partitions: int) -> dict[str, Any]:
    return {"logship_receiver_instances": [{"name": name, "partitions": list(partitions)}]}


def received_of(field: Field, host: str) -> bytes:
    return read_received(field.machines["logs1"].disk / "srv/logs", host)


def has_lines(machine: Machine, host: str) -> bool:
    return machine.does(f"test -s /{OUTPUT}/{host}.log")


def verdict(
    host: Machine, receivers: Sequence[Machine], name: str, output: str = OUTPUT
) -> Verdict:
    """Judge a host by what receivers have, one after the other."""
    written = [(host.disk / path).read_bytes() for path in LOGS]
    return judge(written, b"".join(read_received(one.disk / output, name) for one in receivers))
