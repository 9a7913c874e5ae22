"""A machine of a test's own: this root, read only, under a layer in memory, with real systemd.

It has its own network, users, processes and a name that nobody resolves, and the suite at
/opt/logship as an operator installs it, unless it is bare. Its mounts and processes end with it,
however the test ends, but for empty groups of processes if it is killed.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

from broker.server.process import find_nats_server
from tests.support.processes import Process, Processes, proc, wait_until

ROOT = Path(__file__).parents[2]
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# one in somebody's home, with shared libraries, is none that a service's user could start; the
# system's does as well
_BASE = Path("/usr" if Path("/usr/bin", _PYTHON).exists() else sys.base_prefix)
_HOME = _BASE if Path("/usr") == _BASE else Path("/opt/python")
_SUITE = "/opt/logship"
_PROGRAMS = {"logbroker": "broker", "logshipper": "shipper", "logreceiver": "receiver"}
_CGROUPS = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")

# what it is given ends when the test's process does, in whatever way, and takes all of its own
# processes along
_ALONE = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--mount-proc", "--kill-child"),
)
_LAYERS = """
mount -t tmpfs -o mode=755 none {folder}
mkdir {folder}/upper {folder}/work {folder}/root
mount -t overlay -o lowerdir=/,upperdir={folder}/upper,workdir={folder}/work none {folder}/root
"""
_PREPARE = """
for cgroups in {cgroups}; do
  if [ -e $cgroups/cgroup.procs ]; then
    mkdir $cgroups/{name} && echo $$ > $cgroups/{name}/cgroup.procs
  fi
done
{layers}
cd {folder}/root
rm -rf etc/systemd/system etc/fstab etc/machine-id etc/logship etc/credstore opt/logship
rm -rf var/log/journal
rm -rf var/lib/logbroker var/lib/logshipper var/log/logship var/log/app.log
cp -a {laid}/. .
echo {host} > etc/hostname
echo 127.0.0.1 localhost > etc/hosts
echo {identity} > etc/machine-id
{units}
boot() {{
  systemd-nspawn --register=no {unit} --directory={folder}/root --machine={name} {network} \\
    --resolv-conf=off --timezone=off --link-journal=no {binds} --boot -- systemd.unit={target}
}}
while :; do boot || true; sleep 0.5; done
"""


@cache
def reason_not_to_boot() -> str:
    """Return why no machine can be booted here; empty when one can."""
    if os.geteuid() != 0:
        return "only root can boot a machine"
    needed = ("systemd-nspawn", "setpriv", "unshare", "nsenter")
    missing = [name for name in needed if not shutil.which(name)]
    if missing or not Path("/lib/systemd/systemd").exists():
        return f"{', '.join(missing) or 'systemd'} is not installed (apt install systemd-container)"
    done = subprocess.run(
        [*_ALONE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return f"no machine within this one: {done.stderr.decode()}" if done.returncode else ""


class Machine:
    """A booted machine, from outside."""

    def __init__(self, process: Process, layers: Path) -> None:
        self.process = process
        self._init = 0
        self._layers = layers

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self._init}/root")

    @property
    def disk(self) -> Path:
        """Its files as they are stored, also while it is off, without its own mounts."""
        return Path(f"/proc/{self.process.pid}/root{self._layers}")

    def wait(self) -> None:
        """Wait until it takes orders."""
        wait_until("has an init", self._has_init, 90, [self.process])
        up = lambda: self.does("systemctl is-active sysinit.target")  # noqa: E731
        wait_until("has booted", up, 90, [self.process])

    def cut_power(self) -> None:
        """End all that runs there at once, and boot it again; its files are as they were."""
        os.kill(self._init, signal.SIGKILL)
        self._wait_for_next()

    def power_off(self) -> None:
        """Have it end all that runs there and power itself off, and boot it again."""
        self.output_of("systemctl --no-block poweroff")
        self._wait_for_next()

    def run(self, command: str, seconds: float = 60) -> "subprocess.CompletedProcess[str]":
        arguments = ["nsenter", "-t", str(self._init), "-m", "-u", "-i", "-n", "-p", "-C", "--"]
        path = f"{_SUITE}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        arguments += ["/usr/bin/env", "-i", f"PATH={path}", "sh", "-c", command]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=seconds)

    def does(self, command: str, seconds: float = 60) -> bool:
        return self.run(command, seconds).returncode == 0

    def output_of(self, command: str, seconds: float = 60) -> str:
        done = self.run(command, seconds)
        if done.returncode:
            output = f"{done.stdout}{done.stderr}{self.journal()[-6000:]}"
            raise AssertionError(f"{command}: {done.returncode}\n{output}")
        return done.stdout.strip()

    def show(self, unit: str, name: str) -> str:
        return self.output_of(f"systemctl show --value -p {name} {shlex.quote(unit)}")

    def journal(self, unit: str = "log*") -> str:
        return self.run(f"journalctl --no-pager -o short-monotonic -u '{unit}'").stdout

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def _wait_for_next(self) -> None:
        before, self._init = self._init, 0
        wait_until("has stopped", lambda: not Path(f"/proc/{before}").exists(), 120)
        self.wait()

    def _has_init(self) -> bool:
        for pid in self.process.tree():
            if re.search(r"^NSpid:(\t\d+){2}\t1$", proc(pid, "status"), re.MULTILINE):
                self._init = pid
        return bool(self._init)


def booted(folder: Path, host: str = "web01") -> AbstractContextManager[Machine]:
    """Boot a machine whose settings are as installed; none of the suite's programs runs yet."""
    if reason := reason_not_to_boot():
        pytest.skip(reason)
    laid, root = folder / "laid", folder / "mounts/root"
    binds = [f"--bind-ro={shlex.quote(bind)}" for bind in _lay_out(laid / _SUITE.lstrip("/"))]
    kind = {"network": "--private-network", "target": "sysinit.target", "binds": " ".join(binds)}
    units = f"make --no-print-directory -C {ROOT} install-units DESTDIR={root} >&2"
    return _switched_on(folder, host=host, laid=laid, units=units, **kind)


def bare(
    folder: Path, host: str, laid: Path, bridge: tuple[int, str]
) -> AbstractContextManager[Machine]:
    """Boot a machine with files in `laid` only, on a bridge in the network of a process."""
    process, name = bridge
    within = ("nsenter", "-t", str(process), "-n", "--")
    kind = {"network": f"--network-bridge={name}", "target": "multi-user.target", "binds": ""}
    return _switched_on(folder, within, host=host, laid=laid, units="", **kind)


@contextmanager
def _switched_on(
    folder: Path, within: Sequence[str] = (), **given: str | Path
) -> Iterator[Machine]:
    """Boot a machine as it is `given` to the script, `within` the network of a process."""
    name = f"logship-{os.getpid()}-{folder.name}"[:60].replace("_", "-")
    mounts = folder / "mounts"
    mounts.mkdir()
    script = _PREPARE.format(
        cgroups=" ".join(_CGROUPS),
        layers=_LAYERS.format(folder=mounts),
        folder=mounts,
        identity=uuid.uuid4().hex,  # without one systemd enables whatever there is
        name=name,
        unit="" if Path("/run/systemd/system").exists() else "--keep-unit",
        **given,
    )
    # SIGTERM interrupts: tests end in order, and what they have made is removed
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Processes(folder) as processes:
            arguments = [*within, *_ALONE, "sh", "-ec", script]
            machine = Machine(processes.start("machine", arguments), mounts / "root")
            try:
                machine.wait()
                yield machine
            finally:
                machine.process.kill()  # its power is cut
    finally:
        _remove_groups(name)
        signal.signal(signal.SIGTERM, before)


def _lay_out(suite: Path) -> list[str]:
    """Make an installation of this checkout; return the mounts that it needs, for nspawn."""
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    inside = [f"{_SUITE}/from/{number}" for number in range(len(packages))]
    site, commands = suite / "lib" / _PYTHON / "site-packages", suite / "bin"
    for folder in (site, commands, *(suite / "from" / Path(one).name for one in inside)):
        folder.mkdir(parents=True)
    (suite / "source").mkdir()
    (suite / "pyvenv.cfg").write_text(f"home = {_HOME}/bin\ninclude-system-site-packages = false\n")
    (commands / "python3").symlink_to(_HOME / "bin" / _PYTHON)
    (site / "suite.pth").write_text("\n".join([f"{_SUITE}/source", *inside]))
    for command, package in _PROGRAMS.items():
        text = f"#!{_SUITE}/bin/python3\nfrom {package}.cli import main\n\nmain()\n"
        (commands / command).write_text(text)
        (commands / command).chmod(0o755)
    base = [] if _BASE == _HOME else [f"{_BASE}:{_HOME}"]
    theirs = [f"{there}:{here}" for there, here in zip(packages, inside, strict=True)]
    (commands / "nats-server").touch()
    server = f"{find_nats_server().resolve()}:{_SUITE}/bin/nats-server"
    return [*base, *theirs, server, f"{ROOT}:{_SUITE}/source"]


def _remove_groups(name: str) -> None:
    for top in (Path(cgroups, name) for cgroups in _CGROUPS):
        wait_until(f"{top} is let go", lambda top=top: _is_removed(top), 20)


def _is_removed(top: Path) -> bool:
    with suppress(OSError):  # the kernel takes a moment to let go of the dead
        for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        if top.exists():
            top.rmdir()
    return not top.exists()
