"""Looks after the certificates of a running broker: new ones are taken over, own ones are renewed in time.

What it cannot renew it speaks of, from a month before the end on.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from broker.app.exits import OperatorError
from broker.auth.certificates import End, Pki, ends_of

__all__ = ["LOOK_EVERY", "NEAR", "Certwatch", "near_their_end"]

NEAR = timedelta(days=30)
"""How long before its end a certificate is renewed, or spoken of."""
LOOK_EVERY = 2.0
"""Seconds between two steps."""
_SPEAK_EVERY = timedelta(days=1)
logger = logging.getLogger(__name__)


def near_their_end(ends: Sequence[End], now: datetime) -> tuple[End, ...]:
    """Return those that end within a month, or have ended."""
    return tuple(end for end in ends if end.not_after - now < NEAR)


@dataclass(frozen=True, slots=True)
class _Look:
    """What tells one content of a file from another without reading it."""

    inode: int
    size: int
    modified_ns: int


class Certwatch:
    """The watch over the files of one broker."""

    def __init__(
        self,
        files: Sequence[Path],
        pki: Pki,
        reload: Callable[[], Awaitable[object]],
        now: Callable[[], datetime],
    ) -> None:
        """Remember the files as they are: the server reads them now."""
        self._files = tuple(files)
        self._pki = pki
        self._reload = reload
        self._now = now
        self._seen = self._look()
        self._spoken: datetime | None = None

    async def step(self) -> None:
        """Renew what is due, have the server read what has changed, and speak of what will end."""
        now = self._now()
        if self._spoken is None or now - self._spoken >= _SPEAK_EVERY:
            self._spoken = now
            self._renew(now)
            self._speak(now)
        seen = self._look()
        if seen != self._seen and None not in seen:  # while one is missing, more is to come
            self._seen = seen
            logger.info("certificates have changed; the server reads them again")
            await self._reload()

    def ends(self) -> tuple[End, ...]:
        """Return when the certificates end."""
        return ends_of(self._files)

    def _look(self) -> tuple[_Look | None, ...]:
        return tuple(map(_look, self._files))

    def _renew(self, now: datetime) -> None:
        ours = {str(self._pki.broker), str(self._pki.own)}
        due = [end for end in near_their_end(self.ends(), now) if end.path in ours]
        if not due or not self._pki.authority_key.exists():
            return
        try:
            self._pki.sign(self._pki.read_authority(), self._pki.names(), now)
        except OperatorError as error:
            logger.warning("cannot renew %s: %s", due[0].path, error)
        else:
            logger.info("renewed the certificates that would have ended on %s", due[0].not_after)

    def _speak(self, now: datetime) -> None:
        for end in near_their_end(self.ends(), now):
            word = "ends" if end.not_after > now else "ended"
            logger.warning("certificate %s %s on %s", end.path, word, end.not_after)


def _look(path: Path) -> _Look | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return _Look(status.st_ino, status.st_size, status.st_mtime_ns)
