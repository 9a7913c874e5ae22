"""Scans folders: the files that patterns show, and their rotated siblings.

Blocks, so it runs in a thread; reads no file and remembers nothing.
"""

import os
import stat
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from shipper.sources.files import paths
from shipper.sources.files.identity import FileEntry, FileKey
from shipper.sources.files.listing import Listing
from shipper.sources.files.paths import Selection
from shipper.sources.notices import Notice, NoticeKind


class Scan(NamedTuple):
    """All that one scan saw.

    `archives` are those that cannot be read, `folders` those to watch for changes, `refused` the
    folders and patterns that are left out. `gone` are files that were opened when they came, and
    left their paths before the scan; `were_live` are all that came to live paths.
    """

    entries: Collection[FileEntry]
    troubles: Collection[Notice]
    folders: Sequence[str]
    archives: Sequence[FileEntry] = ()
    refused: Collection[str] = ()
    gone: Sequence[FileEntry] = ()
    were_live: Collection[FileKey] = ()

    def refuses(self, entry: FileEntry) -> bool:
        """Whether a file that was followed before is in a folder that is left out now."""
        return any(
            path.startswith(f"{folder}/")
            for folder in self.refused
            for path in (entry.path, entry.real)
        )


def scan(
    selection: Selection,
    live_paths: Mapping[str, str],
    sought: Callable[[Iterable[FileEntry]], Mapping[int, str]] = lambda _: {},
) -> Scan:
    """Return the files that the selection shows now and their rotated siblings, each path once.

    `live_paths` are the paths that have been followed so far, each with its group: a file that was
    rotated and has no successor yet still has one. `sought` gets the entries and returns the inodes
    to look for nearby, each with the live path of its group. Raises OSError if the system is short
    of descriptors or memory.
    """
    listing = Listing(selection)
    found = listing.expand_patterns(live_paths)
    wanted = dict.fromkeys(path for shown in found.values() for path in shown)
    homes = listing.find_homes({**live_paths, **{path: path for path in wanted}})
    # a glob may show the archives of years: they are read if it names them, as in *.gz
    asked = {path for one, shown in found.items() if paths.compression_of(one) for path in shown}
    folders = dict.fromkeys(map(os.path.dirname, homes))
    siblings = listing.find_siblings(folders, homes)
    closed = {notice.path for notice in listing.troubles}
    entries: dict[str, FileEntry] = {}
    archives: list[FileEntry] = []
    for path in dict.fromkeys([*wanted, *siblings]):
        live = paths.group_of(path, homes)
        if path in asked and live == path:
            live = paths.live_path_of(path)
        seen = inspect(path, homes.get(live, live), path in wanted, listing.find_real)
        if isinstance(seen, Notice):
            # a glob may show folders, and files that are gone by now
            listing.troubles += [seen] * (path in found or seen.kind is not NoticeKind.MISSING)
        elif seen and seen.is_unreadable:
            archives.append(seen)
        elif seen and not (
            _has_shown_target(seen, selection, closed) or listing.refuses(seen, found)
        ):
            entries[path] = replace(seen, wanted=seen.wanted or path in asked)
    listing.troubles += _find_missing(found, listing.refused)
    nearby = _search(listing, sought(_drop_compressed(entries)), entries)
    there = _drop_compressed({**entries, **{entry.path: entry for entry in nearby}})
    watched = list(dict.fromkeys([*listing.folders, *folders]))
    return Scan(there, listing.troubles, watched, archives, listing.refused)


def _has_shown_target(link: FileEntry, selection: Selection, closed: Collection[str]) -> bool:
    """Whether a pattern shows the target of a link, also if it was created after the listing."""
    is_shown = link.real != link.path and selection.shows(link.real)
    return is_shown and os.path.dirname(link.real) not in closed  # noqa: PTH120


def _find_missing(found: Mapping[str, Sequence[str]], refused: Container[str]) -> Iterator[Notice]:
    """Yield a notice for each pattern that shows no file."""
    for pattern, shown in found.items():
        if pattern not in refused and (reason := _find_reason(shown)):
            yield Notice(NoticeKind.MISSING, pattern, reason)


def _find_reason(shown: Sequence[str]) -> str:
    """Return why a pattern shows no file; empty if it does."""
    if not shown:
        return "matches no file yet"
    if not all(map(_is_dangling, shown)):
        return ""
    leads = f"{shown[0]} to {os.readlink(shown[0])}"  # noqa: PTH115 - a path of any bytes
    return f"matches only links that lead nowhere, such as {leads}; is the folder mounted here?"


def _is_dangling(path: str) -> bool:
    return os.path.islink(path) and not os.path.exists(path)  # noqa: PTH110, PTH114


def _drop_compressed(entries: Mapping[str, FileEntry]) -> list[FileEntry]:
    """Return the entries without compressed files whose original is there: that is read."""
    originals = ((entry, paths.decompressed_name(entry.path)) for entry in entries.values())
    # at a live path there is the successor of the original
    return [
        entry
        for entry, original in originals
        if entry.compression is None or original not in entries or original == entry.group
    ]


def _search(listing: Listing, sought: Mapping[int, str], known: Collection[str]) -> list[FileEntry]:
    """Return the files nearby that have a sought inode or a rotated name, each with its group."""
    found: list[FileEntry] = []
    for path, group, is_sibling in listing.search(sought, known):
        entry = inspect(path, group, False, listing.find_real)
        if isinstance(entry, FileEntry) and entry.real == path and not entry.is_unreadable:
            found.append(replace(entry, is_sought=not is_sibling))
    return found


def inspect(
    path: str, group: str, wanted: bool, find_real: Callable[[str], str]
) -> FileEntry | Notice | None:
    """Return what is at a path: a file, or why it cannot be followed; None if it is ignored."""
    try:
        status, real = os.lstat(path), path
        if stat.S_ISLNK(status.st_mode):
            status, real = os.stat(path), find_real(path)  # noqa: PTH116 - any bytes
    except PermissionError:
        return Notice(NoticeKind.UNREADABLE, path, "may not be seen: its folder is closed to us")
    except OSError:
        return Notice(NoticeKind.MISSING, path, "is not there yet")
    if stat.S_ISDIR(status.st_mode):
        return Notice(NoticeKind.MISSING, path, f"is a folder; name its files, as in {path}/*.log")
    compression = paths.compression_of(path)
    if not stat.S_ISREG(status.st_mode):
        refusal = "is a socket or a device, not a file"
        if stat.S_ISFIFO(status.st_mode):
            refusal = "is a pipe; name each pipe in --file, without *; it must exist at the start"
        return Notice(NoticeKind.REFUSED, path, refusal) if wanted else None
    entry = FileEntry(
        path=path,
        real=real,
        group=group,
        key=FileKey(status.st_dev, status.st_ino),
        size=status.st_size,
        modified=status.st_mtime_ns,
        wanted=wanted and compression is None,
        compression=compression,
    )
    if wanted and entry.is_unreadable:
        refusal = "is compressed; archives are read if the pattern ends like them, as in *.gz"
        return Notice(NoticeKind.REFUSED, path, refusal)
    return entry
