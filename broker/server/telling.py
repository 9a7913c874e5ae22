"""Makes the report of a broker: what is known of it, and how its disk is just now."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from broker.auth.certificates import End
from broker.report import End as ToldEnd
from broker.report import Report
from broker.server.binary import Binary
from broker.server.conf import kept_free
from broker.server.outfit import Outfit
from broker.server.server import Server
from broker.server.store import size_of_data

__all__ = ["Known", "Telling"]

_MEASURED_EVERY = 30.0  # seconds: a large store is many files


@dataclass(frozen=True, slots=True)
class Known:
    """What a life of nats-server knows of itself at a moment."""

    outfit: Outfit
    server: Server
    frozen: str
    certificates: Sequence[End]
    parts: Mapping[str, Callable[[], Mapping[str, Any]]]
    """What others add to the report, by its key."""


class Telling:
    """Tells of one life."""

    def __init__(self, folder: Path, binary: Binary, started: datetime, restarts: int) -> None:
        """Remember what does not change; `restarts` counts the lives before this one."""
        self._folder = folder
        self._binary = binary
        self._started = started
        self._restarts = restarts
        self._held = 0
        self._measured = -_MEASURED_EVERY

    async def report(self, known: Known) -> dict[str, Any]:
        """Return the report as plain values."""
        now = time.monotonic()
        if now - self._measured >= _MEASURED_EVERY:
            self._measured = now
            self._held = await asyncio.to_thread(size_of_data, self._folder)
        told = self._report(known).as_json()
        return {**told, **{key: dict(part()) for key, part in known.parts.items()}}

    def _report(self, known: Known) -> Report:
        outfit, disk = known.outfit, shutil.disk_usage(self._folder)
        settings = outfit.settings
        reserve = None if settings.reserve is None else int(settings.reserve)
        return Report(
            name=outfit.conf.name,
            version=self._binary.version,
            commit=known.server.commit,
            binary=str(self._binary.path),
            sha256=self._binary.sha256,
            provenance=self._binary.provenance,
            logship=_own_version(),
            pid=os.getpid(),
            nats_server_pid=known.server.pid,
            started=_iso(self._started),
            restarts=self._restarts,
            store_dir=str(self._folder),
            total=disk.total,
            free=disk.free,
            reserve=kept_free(disk.total, reserve),
            max_store=outfit.conf.max_store,
            held=self._held,
            frozen=known.frozen or None,
            encrypted=settings.encryption_key_file is not None,
            credentials=outfit.admission.credentials if outfit.admission.secured else None,
            certificates=tuple(
                ToldEnd(end.name, end.path, _iso(end.not_after)) for end in known.certificates
            ),
            cluster=settings.cluster or None,
        )


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _own_version() -> str:
    try:
        return version("logship")
    except PackageNotFoundError:
        return "unknown"  # run from its sources, uninstalled
