"""Machines with systemd and SSH on a bridge of their own, for Ansible; nothing is left of them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.oracle import Verdict
from tests.support.processes import Processes, TookTooLong, wait_until
from tests.systemd.machine import Machine, bare, reason_not_to_boot

ROOT = Path(__file__).parents[2]
WHEELHOUSE = os.environ.get("ROLLOUT_WHEELHOUSE", "")
REASON = reason_not_to_boot() or ("" if WHEELHOUSE else "make rollout-test runs it")
MARKS = [
    pytest.mark.booted,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]
# what a machine logs of itself, journald as text and sshd, and an application that is played
LOGS = ("var/log/text.log", "var/log/sshd.log", "var/log/app.log")
_BRIDGE = "rollout"
_NETWORK = f"""
ip link set lo up
ip link add {_BRIDGE} type bridge
ip address add 10.77.0.1/24 dev {_BRIDGE}
ip link set {_BRIDGE} up
exec sleep infinity
"""
_ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-ec")
_SSHD = """
[Service]
RuntimeDirectory=sshd
ExecStart=/usr/sbin/sshd -D -E /var/log/sshd.log -f /etc/ssh/sshd_field
KillMode=process
"""
_TEXT = """
[Service]
ExecStart=/usr/bin/journalctl --follow --no-tail --boot --output=short-iso
StandardOutput=append:/var/log/text.log
"""
_ADDRESS = """
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'ip link set lo up; ip link set host0 up; \
  ip address add {address}/24 dev host0'
"""
_SSHD_SETTINGS = """
HostKey /etc/ssh/field_host_key
AuthorizedKeysFile /etc/ssh/field_authorized_keys
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
"""
_DEBIAN = ("openssh-server", "libwrap0")
# Ansible takes no other encoding
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"}


class Field:
    """Machines by name, the controller's folder, and what is known of who may what."""

    def __init__(self, folder: Path, network: int, stack: ExitStack) -> None:
        """Begin with none; the power of all is cut when the stack ends."""
        self.folder = folder
        self.machines: dict[str, Machine] = {}
        self.log = folder / "plays.log"
        self._network = network
        self._stack = stack
        self.packages = _packages(folder / "packages")

    def boot(self, name: str) -> None:
        self.machines[name] = None  # type: ignore[assignment]  # its number is its address
        place = self.folder / name
        place.mkdir()
        laid = _lay_out(place / "laid", name, self)
        self.machines[name] = self._stack.enter_context(
            bare(place, name, laid, (self._network, _BRIDGE))
        )

    def address(self, name: str) -> str:
        return f"10.77.0.{11 + list(self.machines).index(name)}"

    def wait(self) -> None:
        is_up = "systemctl is-active sshd address"
        for name, machine in self.machines.items():
            up = lambda machine=machine: machine.does(is_up)  # noqa: E731
            wait_until(f"{name} is reached", up, 60)

    def inventory(self, groups: dict[str, Sequence[str]], variables: dict[str, Any]) -> None:
        path = self.folder / "inventory/hosts.yml"
        path.parent.mkdir(exist_ok=True)
        hosts = {name: {"ansible_host": self.address(name)} for name in self.machines}
        common = {
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_ssh_transfer_method": "piped",
            "ansible_ssh_common_args": "-o StrictHostKeyChecking=no "
            "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
            "logship_install_os_packages": [],
            "logship_broker_controller_command": str(Path(sys.executable).with_name("logbroker")),
        }
        content = {
            "all": {"hosts": hosts, "vars": common | variables},
            **{group: {"hosts": dict.fromkeys(names)} for group, names in groups.items()},
        }
        path.write_text(yaml.safe_dump(content), "utf-8")

    def play(self, playbook: str, *arguments: str) -> dict[str, int]:
        """Play a playbook that must succeed; return the number of changed tasks of each machine.

        All of its output is in `log`.
        """
        command = ["nsenter", "-t", str(self._network), "-n", "--"]
        command += [str(Path(sys.executable).with_name("ansible-playbook")), playbook]
        with self.log.open("a+", encoding="utf-8") as log:
            log.write(f"=== {playbook} {' '.join(arguments)}\n")
            log.flush()
            begin = log.tell()
            command += ["--inventory", str(self.folder / "inventory/hosts.yml"), *arguments]
            environment = os.environ | _ENVIRONMENT
            environment["ANSIBLE_SSH_CONTROL_PATH_DIR"] = str(self.folder / "ssh")
            where = ROOT / "ansible"
            done = subprocess.run(
                command, cwd=where, env=environment, stdout=log, stderr=log, timeout=1500
            )
            log.seek(begin)
            output = log.read()
        assert done.returncode == 0, output[-6000:]
        recap = output.partition("PLAY RECAP")[2]
        changed = re.findall(r"^(\S+) +: .*\bchanged=(\d+)", recap, re.MULTILINE)
        return {name: int(count) for name, count in changed}


def received(judge: Callable[[], Verdict]) -> None:
    """Wait for a perfect verdict: machines go on to log, so lines may be under way."""
    with suppress(TookTooLong):
        wait_until("all lines are received", lambda: judge().is_perfect, 120, every=1)
        return
    raise AssertionError(str(judge()))


@contextmanager
def laid_out(folder: Path, names: Sequence[str]) -> Iterator[Field]:
    """Boot machines of these names, bare but for an sshd."""
    folder.mkdir(exist_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True
    )
    (folder / "ssh").mkdir()
    with Processes(folder) as processes, ExitStack() as stack:
        network = processes.start("network", [*_ALONE, _NETWORK])
        assert network.popen
        pid = network.popen.pid
        own = Path("/proc/self/ns/net").readlink()
        wait_until("has a network", lambda: Path(f"/proc/{pid}/ns/net").readlink() != own, 10)
        look = ["nsenter", "-t", str(pid), "-n", "ip", "address", "show", _BRIDGE]
        wait_until("has a bridge", lambda: _says(look, "10.77.0.1"), 10, [network])
        field = Field(folder, pid, stack)
        for name in names:
            field.boot(name)
        field.wait()
        stack.callback(_hang_up, folder / "ssh")
        yield field


def _hang_up(sockets: Path) -> None:
    """End the connections that Ansible keeps for its next play, for a minute else."""
    for socket in sockets.iterdir():
        command = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "field"]
        subprocess.run(command, capture_output=True, check=False)


def _lay_out(laid: Path, name: str, field: Field) -> Path:
    for package in field.packages:
        subprocess.run(["dpkg", "-x", package, laid], check=True)
    _flatten(laid)
    units = laid / "etc/systemd/system"
    wants = units / "multi-user.target.wants"
    wants.mkdir(parents=True)
    address = _ADDRESS.format(address=field.address(name))
    for unit, text in (("sshd", _SSHD), ("address", address), ("text", _TEXT)):
        (units / f"{unit}.service").write_text(text)
        (wants / f"{unit}.service").symlink_to(f"../{unit}.service")
    for log in (laid / path for path in LOGS):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch(0o640)
        shutil.chown(log, "root", "adm")
    (laid / "etc/sysusers.d").mkdir()
    (laid / "etc/sysusers.d/field.conf").write_text("u sshd - sshd /run/sshd\n")
    ssh = laid / "etc/ssh"
    ssh.mkdir(exist_ok=True)
    (ssh / "sshd_field").write_text(_SSHD_SETTINGS)
    (ssh / "field_authorized_keys").write_bytes((field.folder / "key.pub").read_bytes())
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / "field_host_key"], check=True
    )
    return laid


def _packages(folder: Path) -> list[Path]:
    """Return the packages of an sshd, where this machine has none."""
    if Path("/usr/sbin/sshd").exists():
        return []
    folder.mkdir()
    subprocess.run(["apt-get", "download", *_DEBIAN], cwd=folder, check=True, capture_output=True)
    return sorted(folder.glob("*.deb"))


def _flatten(laid: Path) -> None:
    if (laid / "lib").is_dir():
        subprocess.run(["cp", "-a", f"{laid}/lib/.", f"{laid}/usr/lib/"], check=True)
        subprocess.run(["rm", "-r", f"{laid}/lib"], check=True)


def _says(command: list[str], arguments: str) -> bool:
    return arguments in subprocess.run(command, capture_output=True, text=True, check=False).stdout
