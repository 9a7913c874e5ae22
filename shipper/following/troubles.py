"""Remembers what keeps files from being read, so that it is said once and not at every look."""

from collections.abc import Iterable

from shipper.notice import Notice

__all__ = ["Troubles"]


class Troubles:
    """The troubles that last."""

    def __init__(self) -> None:
        self._now: set[Notice] = set()

    def changes(self, troubles: Iterable[Notice]) -> list[Notice]:
        """Take the troubles of a look; return those that the last look did not have."""
        before, self._now = self._now, set(troubles)
        return _sorted(self._now - before)

    def now(self) -> list[Notice]:
        """Return the troubles of the last look."""
        return _sorted(self._now)


def _sorted(notices: Iterable[Notice]) -> list[Notice]:
    return sorted(notices, key=lambda notice: (notice.path, notice.text))
