"""Which entries of a journal are shipped, and how: a value."""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

UNIT_NAMES = ("_SYSTEMD_UNIT", "UNIT", "OBJECT_SYSTEMD_UNIT", "COREDUMP_UNIT", "_SYSTEMD_SLICE")
NAMES = ("PRIORITY", "_PID", "_UID", *UNIT_NAMES)
"""The fields that rules need."""

_FIRST_LINE = r"start:^\S"  # `format` indents further lines
_MAGIC = re.compile(r"[*?[]")
_TYPES = {
    *("service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer"),
    *("slice", "scope"),
}
_ROOT, _MANAGER = b"0", b"1"  # user id, process id

_Name = Literal["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"]
_Number = Literal["0", "1", "2", "3", "4", "5", "6", "7"]
PriorityName = Literal[_Name, _Number]


def number_priority(name: PriorityName) -> int:
    """Return the number of a priority of syslog(3), by its name or its number."""
    return int(name) if name.isdigit() else get_args(_Name).index(name)


def name_unit(text: str) -> str:
    """Return the glob of a unit as journalctl takes it: `nginx` is `nginx.service`."""
    has_type = text.rpartition(".")[2] in _TYPES
    return text if has_type or _MAGIC.search(text) else f"{text}.service"


@dataclass(frozen=True)
class EntryRules:
    """Entries of one of `units`, if any, and of none of `excluded`, that are urgent enough.

    Units are globs; one that ends in `.slice` is of all units in such a slice, too. `least` is the
    largest number of a priority that is shipped; with one, entries without a priority are left out.
    """

    units: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    least: int | None = None

    @property
    def selects_all(self) -> bool:
        """Whether no entry is left out."""
        return not (self.units or self.excluded) and self.least is None

    def select(self, fields: Mapping[bytes, bytes]) -> bool:
        """Whether an entry of these fields is shipped."""
        get = fields.get
        # others may send these fields, but for those of the system
        managed = get(b"UNIT") if get(b"_PID") == _MANAGER else None
        is_root = get(b"_UID") == _ROOT
        others = (get(b"OBJECT_SYSTEMD_UNIT"), get(b"COREDUMP_UNIT")) if is_root else ()
        units = (get(b"_SYSTEMD_UNIT"), managed, *others)
        # any client may send a priority of megabytes, which would be remembered
        return self._selects(get(b"PRIORITY", b"")[:2], get(b"_SYSTEMD_SLICE"), *units)

    @cached_property
    def _selects(self) -> Callable[..., bool]:
        is_wanted, is_unwanted = _matcher_of(self.units), _matcher_of(self.excluded)
        urgent = [b"%d" % number for number in range(8 if self.least is None else self.least + 1)]

        @lru_cache(4096)
        def selects(priority: bytes, *found: bytes | None) -> bool:
            return not (
                (self.least is not None and priority not in urgent)
                or (self.units and not is_wanted(*found))
                or (self.excluded and is_unwanted(*found))
            )

        return selects


SELECT_ALL = EntryRules()


@dataclass(frozen=True, slots=True)
class Options:
    """What is read of a journal, and how.

    `path` names the journal for receivers, `folder` is empty for this machine's. If a journal was
    never followed, files that are older than `ignore_older` (nanoseconds) are not read and, with
    `from_end`, no entry that exists at the start.
    """

    path: str
    folder: str = ""  # an absolute path
    is_json: bool = False
    rules: EntryRules = SELECT_ALL
    from_end: bool = False
    ignore_older: int | None = None
    once: bool = False

    @property
    def records(self) -> str:
        """How the lines of an entry are joined, as messages name it; empty for one line each."""
        return "" if self.is_json else _FIRST_LINE


def _matcher_of(globs: Sequence[str]) -> Callable[..., bool]:
    """Return whether a slice, and the units of an entry in it, are among those of the globs."""
    names = [name_unit(one) for one in globs]
    slices, every = _compile(one for one in names if one.endswith(".slice")), _compile(names)

    def is_match(slice_: bytes | None, *units: bytes | None) -> bool:
        # `system*` is not meant for all that is in system.slice
        return bool(slices.fullmatch(slice_ or b"")) or any(
            every.fullmatch(unit) for unit in units if unit
        )

    return is_match


def _compile(globs: Iterable[str]) -> re.Pattern[bytes]:
    parts = "|".join(map(fnmatch.translate, globs)) or "(?!)"
    return re.compile(parts.encode("utf-8", "surrogateescape"))
