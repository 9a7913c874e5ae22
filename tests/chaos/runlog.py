"""What a run says of itself while it goes, a line of JSON each, in `run.jsonl` of its folder."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["RunLog"]


def _ignore(_: Mapping[str, Any]) -> None:
    pass


class RunLog:
    """Appends events; each has `event` and `at`, in seconds since the run began. `follow` is called with each."""

    def __init__(self, path: Path, follow: Callable[[Mapping[str, Any]], None] = _ignore) -> None:
        self.path = path
        self._follow = follow
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def tell(self, event: str, **fields: Any) -> None:
        """Append one event."""
        told = {"event": event, "at": round(time.monotonic() - self._began, 2), **fields}
        line = json.dumps(told)
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self._follow(told)
