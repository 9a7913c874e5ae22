"""Plays the kubelet and dockerd: where they write containers' lines, link, rotate and compress."""

import gzip
import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.shipper.logs import append

_MOST_FILES = 9  # containerLogMaxFiles, max-file: more than are rotated while no agent runs


@dataclass
class Container:
    """A container whose lines carry its name and a number, and what it has written."""

    name: str
    log: Path
    link: Path | None = None
    written: int = 0
    rotations: int = field(default=0, repr=False)

    def lines(self, first: int, until: int) -> bytes:
        """Return some of its lines, as in the layout of CRI."""
        text = "2026-01-01T00:00:00.000000001Z stdout F"
        return b"".join(f"{self.name} {n:06d} {text}\n".encode() for n in range(first, until))

    def write(self, count: int) -> None:
        append(self.log, self.lines(self.written, self.written + count))
        self.written += count

    def rotate(self) -> None:
        """Rotate as the kubelet, which compresses the file before, or as dockerd, which does it."""
        self._rotate_as_kubelet() if self.link else self._rotate_as_dockerd()
        self.log.touch()

    def _rotate_as_kubelet(self) -> None:
        rotated = sorted(self.log.parent.glob(f"{self.log.name}.*"))
        for path in rotated[: max(0, len(rotated) - _MOST_FILES + 2)]:
            path.unlink()
        for path in self.log.parent.glob(f"{self.log.name}.*[0-9]"):
            _compress(path, path.with_name(f"{path.name}.tmp"))
        self.rotations += 1
        self.log.rename(self.log.with_name(f"{self.log.name}.20260101-{self.rotations:06d}"))

    def _rotate_as_dockerd(self) -> None:
        for number in range(_MOST_FILES - 1, 1, -1):
            if (path := self._numbered(number - 1)).exists():
                path.rename(self._numbered(number))
        first = self.log.with_name(f"{self.log.name}.1")
        self.log.rename(first)
        self.log.touch()
        _compress(first, self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self.log.with_name(f"{self.log.name}.{number}.gz")


def _compress(path: Path, growing: Path) -> None:
    """Compress a file, with the time of now as both do; it has its name at the end."""
    with gzip.open(growing, "wb") as packed:
        packed.write(path.read_bytes())
    growing.rename(path.with_name(f"{path.name}.gz"))
    path.unlink()


@dataclass
class Node:
    """The folders of a machine's containers, below `root` instead of `/var`."""

    root: Path

    @property
    def patterns(self) -> list[str]:
        """What an agent follows."""
        docker = self.root / "lib/docker/containers/*/*-json.log"
        return [str(self.root / "log/containers/*.log"), str(docker)]

    def start_pod(self, pod: str, uid: str = "u1", restarts: int = 0) -> Container:
        """Start the container `app` of a pod in the namespace `shop`."""
        log = self.root / f"log/pods/shop_{pod}_{uid}/app/{restarts}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        name = f"{pod}.{uid}.{restarts}"
        link = self.root / f"log/containers/{pod}_shop_app-{_digest(name)}.log"
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(log)
        return Container(name, log, link)

    def start_docker(self, name: str) -> Container:
        """Start a container of Docker."""
        folder = self.root / "lib/docker/containers" / _digest(name)
        folder.mkdir(parents=True)
        (log := folder / f"{folder.name}-json.log").touch()
        return Container(name, log)

    def delete(self, container: Container) -> None:
        """Delete a pod: the kubelet removes the folder first, and the link later."""
        shutil.rmtree(container.log.parent.parent)
        assert container.link is not None
        container.link.unlink()


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def by_container(lines: bytes) -> dict[str, bytes]:
    """Return lines by the name that they begin with."""
    found: dict[str, list[bytes]] = {}
    for line in lines.splitlines(keepends=True):
        found.setdefault(line.split()[0].decode(), []).append(line)
    return {name: b"".join(some) for name, some in found.items()}


def all_lines(*containers: Container) -> dict[str, bytes]:
    """Return what containers have written, by their names."""
    return {one.name: one.lines(0, one.written) for one in containers if one.written}
