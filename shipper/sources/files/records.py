"""Which records the lines of a file form, and where a reader cuts between them.

Each line of a container's file is one write of the program in it, or a piece of one; so its pieces
are a record if no other records are asked for. The lines of both outputs of a container may
alternate: a record ends at the next line that is complete, of whichever output.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from nats_logship.wire.containers import name_container
from nats_logship.wire.records import Records, parse_records

_NANOSECONDS = 1000
_FIRST_WINDOW = 4096  # bytes at the end of a block in which a boundary is searched first
_WIDER = 8
_PREFIX = r'(\S+ std(out|err) [PF] |{"log":")'
_WHOLE = r'^\S+ std(?:out|err) F|^{"log":"(?:[^"\\]|\\.)*\\n"'
# Each message names the expression: keep them short. Docker writes a tab as \t, a quote as \" and
# an escape as \u001b.
_COLORS = r"((\x1b|\\u001b)\[[\d;]*m)*"
_LEVEL = "TRACE|DEBUG|INFO|NOTICE|WARN(ING)?|ERROR|CRITICAL|FATAL|SEVERE"
_SHORT_LEVEL = "TRC|TRAC|DBG|DEBU|INF|WRN|ERRO?|FTL|FATA|PANI"
# a name, a level or a time; not `[SQL: …` or `[signal SIGSEGV: …`, which belong to a trace
_BRACKET = r"\[(\d+[-/:]|pid: |([\w./ -]|:\w)+\])"
_BEGINS = rf'{_BRACKET}|{{ ?\\?"|<\d'


Preset = Literal["python", "java", "go", "iso-date", "indented"]
"""Records by name: what their first lines begin with, behind colours and a container's prefix."""

_STARTS: dict[Preset, str] = {
    # lines of a log begin with a time, a level or a bracket; the others belong to the line before
    "python": rf"(\d|{_BEGINS}|({_LEVEL})\b|[IWEF]\d{{4}} |Level \d+:|--- Logging error )",
    "java": (
        rf"(\d|{_BEGINS}|({_LEVEL})[^:\w]|####<|[A-Z][a-z][a-z] \d+, \d{{4}} |Exception in thread )"
    ),
    "go": (
        rf"(\d+[-/:.]\d|{_BEGINS}|({_LEVEL}|{_SHORT_LEVEL})\b|[IWEF]\d{{4}} "
        r"|(time|t|ts|level|lvl|caller|logger)=|panic: |fatal error: |SIG[A-Z]+: "
        "|http: panic serving )"
    ),
    "iso-date": rf"\[?{_COLORS}\d{{4}}-\d\d-\d\d",
    "indented": r'([^\s\\\x1b]|\\")',
}


@dataclass(frozen=True, slots=True)
class RecordRules:
    """Which records files have, as messages name them; empty for files whose lines are alone.

    A record that has no end is waited for until its file did not grow for `timeout` nanoseconds,
    and for at most `lines` lines.
    """

    plain: str = ""
    in_containers: str = ""
    timeout: int = 0
    lines: int = 0

    @classmethod
    def of(cls, start: str, preset: Preset | None, timeout: timedelta, lines: int) -> "RecordRules":
        """Return the rules of a start expression, of a preset, or of containers alone."""
        plain, inner = "", f"end:{_WHOLE}"
        if preset is not None:
            plain, inner = (
                f"start:^{prefix}{_COLORS}{_STARTS[preset]}" for prefix in ("", _PREFIX)
            )
        elif start:
            plain = inner = f"start:{start}"
        return cls(plain, inner, timeout // timedelta(microseconds=1) * _NANOSECONDS, lines)

    def records_of(self, path: str) -> Records | None:
        """Return the records of a file at a path, which leads through no link."""
        found = self.in_containers if name_container(path) else self.plain
        return parse_records(found) if found else None


LINES_ALONE = RecordRules()


def end_of_records(records: Records, data: bytes | bytearray, start: int, end: int) -> int:
    """Return the last boundary of records in the whole lines of `data[start:end]`, behind `start`.

    Returns `start` if there is none. Searches the end first: most records are short.
    """
    size = _FIRST_WINDOW
    while True:
        begin = max(start, data.find(b"\n", end - size, end) + 1) if end - size > start else start
        found = records.find_boundaries(data, begin, end)
        # the line before the first one, which may have its beginning, is not searched
        if found and found[-1][1] > begin:
            return found[-1][1]
        if begin == start:
            return start
        size *= _WIDER


def end_of_lines(data: bytes | bytearray, start: int, end: int, count: int) -> int:
    """Return where line number `count` of `data[start:end]` ends; `start` if it has fewer lines."""
    if data.count(b"\n", start, end) < count:
        return start
    return start + sum(len(line) + 1 for line in bytes(data[start:end]).split(b"\n", count)[:count])
