"""nats-server configuration of an operator's own: which settings it holds, and what in it contradicts ours. Text in, values out.

It is included before our own configuration, which therefore wins; what would be lost by that is refused by name. Only
texts that nats-server itself has taken are read here, so what follows is its lexer (conf/lex.go) for valid texts.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Key", "contradiction", "include", "keys_of", "where"]

_SPACE = re.compile(r"(?:[\s,;]|#[^\n]*|//[^\n]*)*")
_GAP = re.compile(r"[ \t\r\n]*[:=]?[ \t\r\n]*")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'', re.DOTALL)
_BLOCK = re.compile(r"\(.*?\n\)(?=\n|\Z)", re.DOTALL)
_KEY = re.compile(r'"[^"]*"|\'[^\']*\'|[^\s:=]+')
_BARE = re.compile(r"[^\s,;\]}]*")
_GAPS = re.compile(r"[\s,;:=]+")
_WORD = re.compile(r"[^\s,;:=\[\]{}\"'(][^\s,;:=\[\]{}]*(?:://[^\s,;\[\]{}]*)?")
_COMMENT = re.compile(r"(?:#|//)[^\n]*")

_FAMILIES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(["listen", "host", "net", "port"], ("listen", "use --listen")),
    **dict.fromkeys(
        ["http", "https", "http_port", "https_port", "monitor_port"], ("http", "use --http")
    ),
    **dict.fromkeys(["jetstream", "store_dir", "storedir"], ("jetstream", "use --store-dir")),
    **dict.fromkeys(
        [
            "accounts",
            "authorization",
            "no_auth_user",
            "system_account",
            "system",
            "no_system_account",
            "no_system",
            "no_sys_acc",
            "operator",
            "operators",
            "roots",
            "root",
            "root_operators",
            "root_operator",
            "resolver",
            "account_resolver",
            "accounts_resolver",
            "resolver_tls",
            "resolver_preload",
            "resolver_pinned_accounts",
            "trusted",
            "trusted_keys",
            "default_sentinel",
        ],
        ("accounts", "use `logbroker credentials`"),
    ),
    **dict.fromkeys(["tls", "allow_non_tls"], ("tls", "use the --tls options")),
    **dict.fromkeys(["cluster"], ("cluster", "use --cluster")),
    **dict.fromkeys(
        ["logfile", "log_file", "logtime", "logtime_utc", "syslog", "remote_syslog"],
        ("logtime", "its log is passed on by logbroker"),
    ),
    **dict.fromkeys(
        ["server_name", "ports_file_dir", "feature_flags", "max_payload"], ("", "logbroker sets it")
    ),
}
_PLACED = re.compile(r"^(?P<file>.+):(?P<line>\d+):(?P<column>\d+): (?P<reason>.*)$")
_KINDS = re.compile(r"interface conversion: interface \{\} (is [^,]+), not (\w+)")
_ON_LINE = re.compile(r"^(?P<before>.*?)on line (?P<line>\d+)(?P<after>.*)$")
_IN_BRACKETS = re.compile(r"^(?P<reason>.*) \(.*:(?P<line>\d+):(?P<column>\d+)\)$")


@dataclass(frozen=True, slots=True)
class Key:
    """A top-level setting, in lower case, with its line from 1; `value` is the path of an include, else empty."""

    name: str
    line: int
    value: str = ""


def keys_of(text: str) -> tuple[Key, ...]:
    """Return the top-level settings of a valid text, includes among them, in their order."""
    found: list[Key] = []
    place = _skipped(text, 0)
    while place < len(text):
        if text[place] in "{}":  # a text may be a map as a whole, as JSON is
            place = _skipped(text, place + 1)
            continue
        match = _KEY.match(text, place)
        if match is None:
            break
        name = match[0].strip("\"'").lower()
        line = text.count("\n", 0, place) + 1
        begin = _matched(_GAP, text, match.end())
        end = _after_value(text, begin)
        is_include = match[0].lower() == "include"
        found.append(Key(name, line, text[begin:end].strip("\"'") if is_include else ""))
        place = _skipped(text, end)
    return tuple(found)


def contradiction(keys: Iterable[Key], ours: Iterable[Key]) -> tuple[Key, str] | None:
    """Return the first key that logbroker decides itself, by what it always does or by what `ours` holds, and why."""
    own = {key.name for key in ours}
    for key in keys:
        family, way = _FAMILIES.get(key.name, (key.name, "logbroker sets it"))
        if key.name in _FAMILIES or family in own:
            return key, way
    return None


def include(path: str) -> str:
    """Return the line that includes a file; raises ValueError for a path that no configuration can name."""
    if "\n" in path or ('"' in path and "'" in path):
        raise ValueError("a path with a line break or with both kinds of quotes cannot be included")
    quote = "'" if '"' in path else '"'
    return f"include {quote}{path}{quote}"


def where(said: str, path: str) -> str:
    """Return what nats-server says of a configuration file as `FILE:LINE:COLUMN: reason`, as far as it tells."""
    reason = _KINDS.sub(r"\1, should be \2", said.removeprefix("nats-server: ").strip())
    if _PLACED.match(reason):
        return reason
    if found := _IN_BRACKETS.match(reason):
        return f"{path}:{found['line']}:{found['column']}: {found['reason']}"
    if found := _ON_LINE.match(reason):
        words = f"{found['before'].strip()}{found['after']}".replace("Parse error:", "").strip()
        return f"{path}:{found['line']}: {words}"
    return f"{path}: {reason}"


def _skipped(text: str, place: int) -> int:
    return _matched(_SPACE, text, place)


def _matched(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place


def _after_value(text: str, place: int) -> int:
    if place >= len(text):
        return place
    match text[place]:
        case '"' | "'":
            return _matched(_STRING, text, place)
        case "(":
            return _matched(_BLOCK, text, place)
        case "{" | "[":
            return _after_nested(text, place)
        case _:
            return _matched(_BARE, text, place)


def _after_nested(text: str, place: int) -> int:
    depth = 0
    while place < len(text):
        for pattern in (_GAPS, _COMMENT, _STRING, _BLOCK, _WORD):
            if found := pattern.match(text, place):
                place = found.end()
                break
        else:
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(text[place], 0)
            place += 1
        if depth <= 0:
            return place
    return place
