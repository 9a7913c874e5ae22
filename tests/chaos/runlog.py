"""What a run says of itself while it goes, a line of JSON each, in `run.jsonl` of its folder."""

import json
import threading
import time
from pathlib import Path
from typing import Any

__all__ = ["RunLog"]


class RunLog:
    """Appends events; each has `event` and `at`, in seconds since the run began."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def tell(self, event: str, **fields: Any) -> None:
        """Append one event."""
        line = json.dumps(
            {"event": event, "at": round(time.monotonic() - self._began, 2), **fields}
        )
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
