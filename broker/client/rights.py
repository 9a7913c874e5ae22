"""What a user may publish, as the server tells it (`$SYS.REQ.USER.INFO`). Decides; asks nobody."""

from collections.abc import Mapping
from typing import Any

__all__ = ["may_publish"]


def may_publish(permissions: Mapping[str, Any] | None, subject: str) -> bool:
    """Whether permissions, None for a user without limits, let a message go to `subject`."""
    publish = (permissions or {}).get("publish")
    if publish is None:
        return True
    allowed, denied = publish.get("allow"), publish.get("deny") or ()
    if any(_covers(pattern, subject) for pattern in denied):
        return False
    return allowed is None or any(_covers(pattern, subject) for pattern in allowed)


def _covers(pattern: str, subject: str) -> bool:
    tokens, parts = pattern.split("."), subject.split(".")
    if tokens[-1] == ">":
        tokens = tokens[:-1]
        if len(parts) <= len(tokens):
            return False
        parts = parts[: len(tokens)]
    return len(tokens) == len(parts) and all(
        token in {"*", part} for token, part in zip(tokens, parts, strict=True)
    )
