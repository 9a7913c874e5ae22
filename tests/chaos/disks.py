"""Small disks, one for each machine, that fill up, lose their power and turn read-only.

Brokers and receivers have ext4 on a loop device if the machine allows it ("blocks"): only a real
file system turns read-only under open files, and forgets what was not synced. Others have a tmpfs.
Only in own mounts, with which images and loop devices go.
"""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.fault import CannotStrike, alone

_INODES = 8192
_MIB = 1 << 20
_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, linux/ext4.h
_FREEZE, _THAW = 0xC0045877, 0xC0045878  # FIFREEZE and FITHAW, linux/fs.h
_WITHOUT_LOG = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH: what is not on the device by now never gets there
_MKFS = ("mkfs.ext4", "-q", "-F", "-m", "0", "-i", "8192", "-E", "lazy_itable_init=0")
_BALLAST = ".ballast"
_LET_GO = 30.0  # seconds until nobody has a file open there


@dataclass(slots=True, eq=False)
class Disk:
    """A file system of its own at `path`; `image` is what it is on, None for a tmpfs."""

    name: str
    path: Path
    megabytes: int
    image: Path | None = None
    _trouble: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def mounted(cls, name: str, path: Path, megabytes: int, images: Path | None = None) -> "Disk":
        """Mount an empty disk at a new folder: on an image in the folder `images`, or a tmpfs."""
        path.mkdir(parents=True)
        if images is None:
            options = f"size={megabytes}m,nr_inodes={_INODES},mode=0755"
            _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", path)
            return cls(name, path, megabytes)
        image = images / name
        with image.open("wb") as file:
            file.truncate(megabytes * _MIB)
        _run(*_MKFS, image)
        disk = cls(name, path, megabytes, image)
        disk._mount()
        return disk

    def trouble(self) -> AbstractContextManager[None]:
        """Keep other faults of this disk away; raises `CannotStrike` while one is under way."""
        return alone(self._trouble, f"{self.name} has trouble already")

    def fill(self, left: int = 0) -> None:
        if self.image is None:
            self._resize(left)
            return
        with (self.path / _BALLAST).open("wb") as file, suppress(OSError):
            # where metadata takes the last of it, this ends with ENOSPC and the disk is full
            os.posix_fallocate(file.fileno(), 0, max(1, self._free() - left))

    def free(self) -> None:
        if self.image is None:
            self._remount(f"size={self.megabytes}m")
        else:
            (self.path / _BALLAST).unlink()
            with self._folder() as folder:
                os.fsync(folder)  # else it is back where the disk fails or loses its power next

    def fail(self, *, frozen: bool = False) -> None:
        """Have the file system find an error: from now on it is read-only, open files too.

        Until its superblock is written, syncs succeed without writing; nobody writes if it is
        `frozen`.
        """
        with self._folder() as folder:
            if frozen:
                fcntl.ioctl(folder, _FREEZE, 0)
            try:
                Path(f"/sys/fs/ext4/{self._device()}/trigger_fs_error").write_text("1")
            finally:
                if frozen:
                    fcntl.ioctl(folder, _THAW, 0)

    def cut_power(self) -> None:
        """Lose what was not synced; nothing can be read or written until `mend`."""
        with self._folder() as folder:
            fcntl.ioctl(folder, _SHUT_DOWN, struct.pack("I", _WITHOUT_LOG))

    def unmount(self) -> None:
        """Take it off as soon as nobody uses it any more; raises `TimeoutError`."""
        deadline = time.monotonic() + _LET_GO
        while subprocess.run(["umount", self.path], check=False, capture_output=True).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError(f"somebody holds on to {self.name}")
            time.sleep(0.1)

    def mend(self) -> None:
        checked = subprocess.run(
            ["e2fsck", "-f", "-y", str(self.image)], check=False, capture_output=True, text=True
        )
        if checked.returncode > 1:  # 1 is "errors corrected"
            raise RuntimeError(f"{self.name} is beyond repair: {checked.stdout}{checked.stderr}")
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop,errors=remount-ro", str(self.image), self.path)

    @contextmanager
    def _folder(self) -> Iterator[int]:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            yield folder
        finally:
            os.close(folder)

    def _device(self) -> str:
        asked = ["findmnt", "-no", "SOURCE", str(self.path)]
        told = subprocess.run(asked, check=True, capture_output=True, text=True)
        return Path(told.stdout.strip()).name

    def _free(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def _resize(self, left: int) -> None:
        for _ in range(20):
            status = os.statvfs(self.path)
            used = (status.f_blocks - status.f_bfree) * status.f_frsize
            try:
                self._remount(f"size={max(4096, used + left)}")
            except subprocess.CalledProcessError:
                continue  # somebody has written meanwhile
            return
        raise CannotStrike(f"{self.name} is written to too fast")

    def _remount(self, options: str) -> None:
        _run("mount", "-o", f"remount,{options}", self.path)


def have_blocks() -> bool:
    """Whether file systems on loop devices can be had here, and broken."""
    if any(shutil.which(tool) is None for tool in ("mkfs.ext4", "e2fsck", "findmnt")):
        return False
    with tempfile.TemporaryDirectory() as scratch:
        try:
            disk = Disk.mounted("tried", Path(scratch, "mounted"), 8, Path(scratch))
        except (subprocess.CalledProcessError, OSError):
            return False
        try:
            disk.cut_power()
            return Path(f"/sys/fs/ext4/{disk._device()}/trigger_fs_error").exists()
        except OSError as error:
            if error.errno not in {errno.ENOTTY, errno.EPERM, errno.EOPNOTSUPP}:
                raise
            return False
        finally:
            disk.unmount()


def _run(*arguments: str | Path) -> None:
    subprocess.run(arguments, check=True, capture_output=True)
