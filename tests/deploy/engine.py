"""Podman in namespaces of its own: no network but loopback, storage in a folder, nothing left.

The base image is made by debootstrap, so no registry is reached.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import Process, Processes, proc, wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE = "localhost/base"
_NEEDED = ("podman", "buildah", "crun", "debootstrap", "setpriv", "unshare", "nsenter")
_SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}  # of Debian, by their Python
# what is in it ends with the test's process, in whatever way that ends
_ALONE = (
    *("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--propagation", "private"),
    *("--pid", "--mount-proc", "--kill-child", "sh", "-ec"),
)
# crun refuses a machine with both kinds of cgroups
_HOLD = "ip link set lo up; mount -t cgroup2 none /sys/fs/cgroup; exec sleep infinity"
_STORAGE = """
[storage]
driver = "overlay"
runroot = "{folder}/run"
graphroot = "{folder}/graph"
"""
_ENGINE = """
[containers]
cgroups = "disabled"
netns = "host"
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


@cache
def reason_not_to_run() -> str:
    """Return why no container can be run here; empty when one can."""
    if os.geteuid() != 0:
        return "only root can make a base image"
    if missing := [name for name in _NEEDED if not shutil.which(name)]:
        return f"{', '.join(missing)} is not installed (apt install podman buildah debootstrap)"
    if sys.version_info[:2] not in _SUITES:
        return "no suite of Debian has this Python"
    return ""


class Engine:
    """Builds images, and runs services as `compose.yaml` has them, all in one network."""

    def __init__(self, folder: Path, holder: Process) -> None:
        self._folder = folder
        self._holder = holder
        self._environment = os.environ | {
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
        }

    def is_up(self) -> bool:
        """Whether the namespaces are made."""
        return proc(int(self._inside or 0), "comm") == "sleep\n"

    def call(self, *arguments: str | Path, seconds: float = 300) -> str:
        """Run a command beside the containers, and return its output; it must succeed."""
        done = subprocess.run(
            ["nsenter", "-t", self._inside, "-m", "-p", "-n", "--", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr[-3000:]}"
        return done.stdout.strip()

    def make_base(self) -> None:
        """Make the base image; a machine that reaches no mirror of Debian fails here."""
        root, suite = self._folder / "base", _SUITES[sys.version_info[:2]]
        packages = "--include=python3,python3-venv,ca-certificates"
        # in the network of this machine, but its mounts and processes end with all others
        command = ["nsenter", "-t", self._inside, "-m", "-p", "--"]
        command += ["debootstrap", "--variant=minbase", packages, suite, root]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout[-1000:]
        for path in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc"):
            shutil.rmtree(root / path)
        archive = self._folder / "base.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        self.call("podman", "import", archive, BASE)
        shutil.rmtree(root)
        archive.unlink()

    def build(self, wheelhouse: Path) -> None:
        """Build all images by `make images`, without a network."""
        build = "BUILD=buildah build --isolation chroot --layers --pull-never"
        given = (f"WHEELHOUSE={wheelhouse}", f"BASE={BASE}", build)
        self.call("make", "-C", DEPLOY.parent, "-o", "wheelhouse", "images", *given, seconds=1500)

    def size(self, image: str) -> int:
        """Return the bytes of an image."""
        return int(self.call("podman", "image", "inspect", "--format", "{{.Size}}", image))

    def start(self, name: str, service: Mapping[str, Any]) -> None:
        """Start a container of a service, in place of an earlier one of that name."""
        self.call("podman", "rm", "--force", "--ignore", name)
        self._run(service, "--detach", "--name", name)

    def finish(self, service: Mapping[str, Any]) -> str:
        """Run a container of a service to its end, and return its output."""
        return self._run(service, "--rm")

    def _run(self, service: Mapping[str, Any], *options: str) -> str:
        program, *arguments = service.get("command") or [""]
        entry = ["--entrypoint", program] * bool(program)
        given = [text for key, value in service.items() for text in _OPTIONS[key](value)]
        names = ("--add-host=broker:127.0.0.1", "--add-host=logbroker:127.0.0.1")
        fixed = ("--pull=never", "--ulimit=host", "--network=host", *names)
        image = service["image"]
        return self.call("podman", "run", *options, *fixed, *given, *entry, image, *arguments)

    def kill(self, service: str) -> None:
        """Send -9 to the first process of a container, which ends all others of it."""
        self.call("podman", "kill", "--signal", "KILL", service)
        assert self.call("podman", "wait", service) == "137"

    def stop(self, service: str) -> int:
        """Ask a container to end, and return its exit code."""
        self.call("podman", "stop", "--time", "30", service)
        return int(self.inspect(service)["State"]["ExitCode"])

    def inspect(self, service: str) -> dict[str, Any]:
        return json.loads(self.call("podman", "inspect", service))[0]  # type: ignore[no-any-return]

    def logs(self) -> str:
        """Return what all containers have logged, for the message of a failure."""
        names = self.call("podman", "ps", "--all", "--format", "{{.Names}}").split()
        command = ["sh", "-c", "podman logs $0 2>&1"]
        return "\n".join(f"== {name}\n{self.call(*command, name)}" for name in names)

    @property
    def _inside(self) -> str:
        pid = self._holder.pid
        return proc(pid, f"task/{pid}/children").strip()


@contextmanager
def running(folder: Path) -> Iterator[Engine]:
    """Yield an engine with an empty storage in `folder`; all of its containers end with it."""
    folder.mkdir()
    (folder / "storage.conf").write_text(_STORAGE.format(folder=folder))
    (folder / "containers.conf").write_text(_ENGINE)
    with Processes(folder) as processes:
        holder = processes.start("holder", [*_ALONE, _HOLD])
        engine = Engine(folder, holder)
        wait_until("the namespaces are there", engine.is_up, 20, [holder])
        try:
            yield engine
        finally:
            holder.kill()
            shutil.rmtree(folder, ignore_errors=True)  # some gigabytes


def read_services(variables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the services of `compose.yaml`, filled with variables or their defaults."""
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    filled = _VARIABLE.sub(lambda found: str(variables.get(found[1], found[2])), text)
    return dict(yaml.safe_load(filled)["services"])


# the options of `podman run` for the keys of a service; what needs cgroups or a daemon has none
_OPTIONS: dict[str, Any] = {
    "read_only": lambda value: ["--read-only", "--read-only-tmpfs=false"] * value,
    "cap_drop": lambda names: [f"--cap-drop={name}" for name in names],
    "security_opt": lambda texts: [f"--security-opt={text}" for text in texts],
    "environment": lambda texts: [f"--env={name}={text}" for name, text in texts.items()],
    "volumes": lambda texts: [f"--volume={text}" for text in texts],
    "tmpfs": lambda paths: [f"--tmpfs={path}" for path in paths],
    "user": lambda user: [f"--user={user}"],
    "group_add": lambda groups: [f"--group-add={group}" for group in groups],
    "image": lambda _: [],
    "command": lambda _: [],
    "restart": lambda _: [],
    "stop_grace_period": lambda _: [],
    "mem_limit": lambda _: [],
}
