"""Where the JetStream API is for a user: under `$JS.API`, or under the prefix that its account imports it by.

Reads what the server says of the user's rights (`$SYS.REQ.USER.INFO`); asks nobody. A user without limits that has the
API under another prefix cannot be told from one that has it where it usually is: that prefix must be given.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from broker.client.rights import may_publish

__all__ = ["JETSTREAM", "Api"]

JETSTREAM = "$JS.API"
"""The prefix for who is in the account with the stream."""

_CALL = re.compile(r"([^*>]+?)\.(?:CONSUMER|DIRECT|STREAM)\..+")
_REMEMBERED = 10_000  # names of calls


class Api:
    """The subjects of the calls of one user."""

    def __init__(self, permissions: Mapping[str, Any] | None = None, prefix: str = "") -> None:
        """Go by the rights, None for a user without limits, or by a prefix that was given."""
        self.permissions = permissions
        self._prefixes = (prefix,) if prefix else _prefixes(permissions)
        self._known: dict[str, str] = {}

    @classmethod
    def told(cls, answer: bytes) -> "Api":
        """Go by what the server says of us; by nothing where it says nothing that can be read."""
        try:
            return cls(json.loads(answer)["data"].get("permissions"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def subject(self, call: str) -> str:
        """Return the subject of a call, such as `STREAM.INFO.LOGS`; one without the right to it where it would be."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        if call not in self._known:
            self._known[call] = self._find(call)
        return self._known[call]

    def _find(self, call: str) -> str:
        subjects = [f"{prefix}.{call}" for prefix in self._prefixes]
        if len(subjects) == 1:
            return subjects[0]
        return next((one for one in subjects if may_publish(self.permissions, one)), subjects[0])


def _prefixes(permissions: Mapping[str, Any] | None) -> tuple[str, ...]:
    allowed = ((permissions or {}).get("publish") or {}).get("allow") or ()
    found = [match[1] for pattern in allowed if (match := _CALL.fullmatch(pattern))]
    renamed = [prefix for prefix in found if prefix != JETSTREAM]
    return tuple(dict.fromkeys((*renamed, JETSTREAM)))
