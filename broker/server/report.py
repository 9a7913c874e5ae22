"""The report of a broker: what it answers whoever asks on `broker.report.SUBJECT`; the keys stay."""

import asyncio
import json
import os
import shutil
import time
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from broker.auth.certificates import ends_of
from broker.client.connection import Message
from broker.report import SUBJECT
from broker.server.requests import Listening
from broker.server.resolve import space_kept_free
from broker.server.store import size_of_data

if TYPE_CHECKING:
    from broker.server.context import ServerContext

__all__ = ["Reporter"]

_MEASURED_EVERY = 30.0  # seconds: a large store is many files


class Reporter:
    """Reports on one nats-server since its start, to whoever asks."""

    def __init__(self, context: "ServerContext", started: datetime) -> None:
        """Measure nothing yet."""
        self._context = context
        self._started = started
        self._held = 0
        self._measured = -_MEASURED_EVERY
        self.listening = Listening(context.connection, SUBJECT, self._answer)
        """To be run."""

    async def _answer(self, message: Message) -> None:
        if message.reply:
            report = json.dumps(await self._report()).encode()
            await self._context.connection.publish(message.reply, report)

    async def _report(self) -> dict[str, Any]:
        """Return the report: sizes in bytes, times in RFC 3339."""
        now = time.monotonic()
        if now - self._measured >= _MEASURED_EVERY:
            self._measured = now
            self._held = await asyncio.to_thread(size_of_data, self._context.folder)
        parts = {key: dict(part()) for key, part in self._context.report_parts.items()}
        return {**self._of_server(), **self._of_store(), **parts}

    def _of_server(self) -> dict[str, Any]:
        context, resolved = self._context, self._context.resolved
        admission = resolved.admission
        return {
            "name": resolved.conf.name,
            "version": context.binary.version,
            "commit": context.server.commit,
            "binary": str(context.binary.path),
            "logship": _own_version(),
            "pid": os.getpid(),
            "nats_server_pid": context.server.pid,
            "started": _rfc3339(self._started),
            "restarts": context.restarts,
            "credentials": admission.credentials if admission.secured else None,
            "certificates": [
                {"name": end.name, "path": end.path, "not_after": _rfc3339(end.not_after)}
                for end in ends_of(resolved.security.files)
            ],
            "cluster": resolved.settings.cluster or None,
            "mirror": context.mirror,
        }

    def _of_store(self) -> dict[str, Any]:
        context, settings = self._context, self._context.settings
        disk = shutil.disk_usage(context.folder)
        return {
            "store_dir": str(context.folder),
            "total": disk.total,
            "free": disk.free,
            "reserve": space_kept_free(settings, disk.total),
            "held": self._held,
            "frozen": context.frozen or None,
            "encrypted": settings.encryption_key_file is not None,
        }


def _rfc3339(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _own_version() -> str:
    try:
        return version("nats-logship")
    except PackageNotFoundError:
        return "unknown"  # run from its sources, uninstalled
