"""What a person sees of a run while it goes: a line for each stroke, made of the events of the run log."""

from collections.abc import Mapping
from typing import Any

__all__ = ["Progress"]


class Progress:
    """Turns events into lines; remembers the stroke that is under way."""

    def __init__(self) -> None:
        self._stroke = ""
        self._misses: list[str] = []

    def line_of(self, event: Mapping[str, Any]) -> str | None:
        """Return the line that an event completes, None for one that completes none."""
        match event["event"]:
            case "stroke":
                line = f"{self._told()}: no lines waited for" if self._stroke else None
                self._stroke = f"{event['number']:4}  {_faults(event['faults'])}"
                self._misses = []
                return line
            case "not struck":
                self._misses.append(event["kind"])
                return None
            case "flows":
                what = self._told() if self._stroke else "   -  all is started"
                self._stroke = ""
                return f"{what}: lines flow after {event['waited']:.1f} s"
            case "finding":
                what = self._told() if self._stroke else "   -"
                self._stroke = ""
                return f"{what}: {event['words']}"
            case "dry":
                return f"   -  no faults any more: all is received after {event['waited']:.1f} s"
            case _:
                return None

    def _told(self) -> str:
        misses = f" (nothing to hit: {', '.join(self._misses)})" if self._misses else ""
        return f"{self._stroke}{misses}"


def _faults(faults: list[Mapping[str, Any]]) -> str:
    return " + ".join(
        f"{fault['kind']} {fault['lasts']:g} s" if fault["lasts"] else str(fault["kind"])
        for fault in faults
    )
