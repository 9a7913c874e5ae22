"""The patterns that name files: what a glob means, as the shell has it. Knows names only; looks into no folder."""

import re
from functools import lru_cache

__all__ = ["has_magic", "pattern_of", "within"]

_MAGIC = re.compile(r"[*?[]")


def has_magic(pattern: str) -> bool:
    """Whether a pattern, or a part of one, can stand for more than one name."""
    return _MAGIC.search(pattern) is not None


@lru_cache(maxsize=1024)
def pattern_of(glob: str) -> re.Pattern[str]:
    """Return what matches the whole paths, or the whole names, that a glob shows.

    `*` and `?` stay within a name, `**` as a name of its own stands for any number of folders, and a name that begins
    with a dot is shown only by a pattern that begins with one.
    """
    return re.compile(_translate(glob, r"(?!\.)"), re.DOTALL)


@lru_cache(maxsize=1024)
def within(glob: str) -> re.Pattern[str]:
    """Return what matches the whole paths that a glob leaves out: those it names, hidden or not, and all beneath."""
    return re.compile(f"{_translate(glob, '')}(?:/.*)?", re.DOTALL)


def _translate(glob: str, visible: str) -> str:
    parts = glob.split("/")
    last = len(parts) - 1
    found = []
    for number, part in enumerate(parts):
        if part == "**":
            folders = f"(?:{visible}[^/]+/)*"
            found.append(folders if number < last else f"{folders}{visible}[^/]+")
        else:
            shown = visible if part[:1] in {"*", "?", "["} else ""
            found.append(shown + _name(part) + ("/" if number < last else ""))
    return "".join(found)


def _name(part: str) -> str:
    found, at = "", 0
    while at < len(part):
        if (
            part[at] == "["
            and (end := part.find("]", at + 2 + part.startswith(("!", "^"), at + 1))) > 0
        ):
            found += _one_of(part[at + 1 : end])
            at = end
        else:
            found += {"*": "[^/]*", "?": "[^/]"}.get(part[at], re.escape(part[at]))
        at += 1
    return found


def _one_of(letters: str) -> str:
    none_of = letters[0] in "!^"
    chosen = letters[1:] if none_of else letters
    pieces = []
    while chosen:
        if len(chosen) > 2 and chosen[1] == "-":
            low, high, chosen = chosen[0], chosen[2], chosen[3:]
            # a range from high to low holds nothing
            pieces += [f"{re.escape(low)}-{re.escape(high)}"] if low <= high else []
        else:
            pieces.append(re.escape(chosen[0]))
            chosen = chosen[1:]
    if none_of:
        return f"[^/{''.join(pieces)}]"
    return f"(?!/)[{''.join(pieces)}]" if pieces else "(?!)"
