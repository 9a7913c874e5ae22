"""Where a table is: a folder, or a prefix of an object store as delta-rs names it.

Files are complete and on disk when `write` ends, under a name that nobody else uses.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.faults import fault
from receiver.storage.disk import raise_if_failed

_NOT_WRITTEN = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or an address such as `s3://bucket/logs`, with delta-rs' own options."""

    uri: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path | None:
        """The folder, None for an object store."""
        parts = urlsplit(self.uri)
        if "://" not in self.uri:
            return Path(self.uri).absolute()
        return Path(parts.path) if parts.scheme == "file" else None

    @property
    def storage_options(self) -> dict[str, str]:
        """The options as delta-rs takes them."""
        return dict(self.options)

    @property
    def root(self) -> str:
        """The address as delta-rs takes it."""
        return self.uri if self.folder is None else str(self.folder)

    def require_folder(self) -> None:
        """Raise `ConfigurationError` if there is no folder, or one that delta-rs cannot write."""
        folder = self.folder
        if folder and (found := _NOT_WRITTEN.search(str(folder))):
            raise ConfigurationError(
                f"--table {self.uri}: {found[0]!r} in a path is something else for delta-rs; "
                "rename the folder, or give another one"
            )
        for path in (folder, *folder.parents) if folder else ():
            if path.exists() and not path.is_dir():
                raise ConfigurationError(f"--table {self.uri}: {path} is not a folder")

    def child(self, name: str) -> "Location":
        """Return the location below this one."""
        return Location(f"{self.root.rstrip('/')}/{name}", self.options)

    @property
    def file_system(self) -> Any:
        """The file system of pyarrow in which paths begin at this location."""
        import pyarrow.fs as file_systems

        if folder := self.folder:
            return file_systems.SubTreeFileSystem(str(folder), file_systems.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler  # only object stores need it in tasks

        handler = DeltaStorageHandler(self.root, self.storage_options)
        return file_systems.PyFileSystem(handler)

    @contextmanager
    def write(self, path: str) -> Iterator[Any]:
        """Write a new file below this location; it is on disk afterwards. Raises OSError."""
        if (folder := self.folder) is None:
            with self.file_system.open_output_stream(path) as sink:
                yield sink
            return
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack, target.open("xb") as file:
            stack.callback(target.unlink)  # a full disk is not to fill with halves
            yield file
            file.flush()
            fault("table_written")
            os.fsync(file.fileno())
            stack.pop_all()
        for changed in (target.parent, target.parent.parent):
            sync_folder(changed)
        fault("table_synced")


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk; raises OSError, also if its file system has failed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    raise_if_failed(folder)
