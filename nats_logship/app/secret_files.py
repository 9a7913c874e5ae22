"""Files that hold secrets: whose credential a file is, by its first line, and who may read it."""

import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from nats_logship.app.exits import ConfigurationError

_HEAD = "# {}: a credential; nobody else may read this file"
_HOLDER = re.compile(r"^# (?P<kind>[a-z]+) \S+: .*nobody else may read", re.MULTILINE)
# beside a certificate: a private key, the seed of an nkey, a password, also one in an address
_SECRET = re.compile(rb"PRIVATE KEY|\bS[A-Z2-7]{57}\b|password|://[^/\s]*:[^/\s]*@", re.IGNORECASE)


def head_of(holder: object) -> str:
    """Return the first line of a credential file, which names its holder, e.g. `host web01`."""
    return _HEAD.format(holder)


def kind_of(text: str) -> str:
    """Return the kind of credential that a file's text is; empty for other files."""
    found = _HOLDER.search(text)
    return found["kind"] if found else ""


def check_kind(path: Path, text: str, taker: str, kinds: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a credential of another kind than `taker` accepts.

    `kinds[0]` is the one that can do all of it. A file without a holder is accepted.
    """
    kind = kind_of(text)
    if not kind or kind in kinds:
        return
    needed = f"{_a(kinds[0])}'s"
    if "monitor" in kinds[1:]:
        needed += " (to see its status a monitor's is enough)"
    raise ConfigurationError(
        f"{path} is {_a(kind)}'s credential, {taker} needs {needed}: "
        f"`logbroker credentials add {kinds[0]} NAME --store-dir DIR` makes one"
    )


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def readable_by_others(paths: Iterable[Path]) -> list[Path]:
    """Return the files that every user may read; certificates without a key are no secret."""
    found = []
    for path in paths:
        with suppress(OSError):  # the reader of the file reports it
            if path.stat().st_mode & stat.S_IROTH and not _is_public(path.read_bytes()):
                found.append(path)
    return found


def _is_public(content: bytes) -> bool:
    return b"BEGIN CERTIFICATE" in content and not _SECRET.search(content)
