"""The folder that a replay fills: taken only when it is empty or an unfinished replay's.

Tasks write under `.replaying`; when all of that is on disk it takes its place name by name. `.replay.json` says whether
the replay is done. An unfinished one is begun anew, and the files that its path template has go.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.folder import open_folder
from broker.app.whole import clear_away, replacing
from receiver.consume.place import MARKED
from receiver.storage import rotation
from receiver.storage.folders import Folders, make_folder, walk
from receiver.storage.layout import DEFAULT, Days, Layout
from receiver.storage.names import Names
from receiver.storage.opening import read, sync_folder
from receiver.storage.quarantine import FOLDER
from receiver.storage.store import Store

__all__ = ["STAGE", "finish", "prepare", "publish"]

STAGE = ".replaying"
_MARK = ".replay.json"


def prepare(output: Path, template: str = DEFAULT) -> Path:
    """Make `output` ready and return the folder under it that tasks write into, which is empty.

    Raises `ConfigurationError` when it belongs to a receiver, holds a finished replay or anything else, OSError.
    """
    make_folder(output)
    with open_folder(output) as folder:
        clear_away(folder, _MARK)  # of a replay that died, or had no room, before it began
        names = folder.names()
    if ".logreceiver" in names or MARKED in names:
        raise ConfigurationError(
            f"{output} is a receiver's: a replay never touches its files; give an empty --output"
        )
    if _MARK in names:
        _clear(output, names)
    elif names:
        raise ConfigurationError(
            f"{output} is not empty; a replay is written into a folder of its own"
        )
    _write_mark(output, {"state": "under way", "path_template": template})
    stage = output / STAGE
    stage.mkdir(mode=0o750)
    return stage


def _clear(output: Path, names: Iterable[str]) -> None:
    try:
        mark = json.loads(read(output / _MARK))
        layout = Layout(mark["path_template"]) if mark["state"] != "done" else None
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{output / _MARK} is damaged; give an empty --output") from None
    if layout is None:
        raise ConfigurationError(f"{output} holds a finished replay; give an empty --output")
    for name in sorted(set(names) - {_MARK, STAGE, FOLDER}):
        if not _is_of(layout, output, name):
            raise ConfigurationError(
                f"{output} holds {name} beside an unfinished replay; give an empty --output"
            )
    for name in set(names) - {_MARK}:
        path = output / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _is_of(layout: Layout, output: Path, name: str) -> bool:
    """Say whether all that is at a name in the output folder has a path of the layout; raises OSError."""
    path = output / name
    is_folder = path.is_dir() and not path.is_symlink()
    paths: Iterable[str] = walk(output, name) if is_folder else (name,)
    return not name.startswith(".") and all(layout.holds(rotation.live_of(p)) for p in paths)


def publish(output: Path, attempts: list[tuple[int, Path]], template: str = DEFAULT) -> None:
    """Move the files of attempts (partition, folder) to their places.

    Raises OSError, and OperatorError when a folder is not seen here.
    """
    moves: dict[str, Path] = {}
    places = _Places(Layout(template))
    for partition, folder in attempts:
        if not folder.is_dir():
            raise OperatorError(
                f"{folder} was written by a task but is not seen here; --output must be a folder that all "
                "executors share"
            )
        moves |= places.of(partition, folder)
        for path in (folder / FOLDER).glob("*.msg"):
            moves[f"{FOLDER}/{path.name}"] = path
    folders = Folders(output)
    try:
        for name, path in moves.items():
            below = name.rpartition("/")[0]
            folders.make(below)
            folders.note_change(below)
            path.rename(output / name)
        folders.sync()
    finally:
        folders.close()


class _Places:
    """The places in the output folder that are given away, in the order of the attempts, so that no two files meet."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._names = Names(Store.in_memory(), layout, Days())
        self._taken: set[str] = set()

    def of(self, partition: int, folder: Path) -> dict[str, Path]:
        """Return the files of an attempt at a partition by their places; raises OSError.

        The second partition that has lines of a host's file gets one of its own, as a receiver's does, and a path that is
        a file already becomes no folder.
        """
        names = sorted(walk(folder))
        lives = {live: self._place(live, partition) for live in map(rotation.live_of, names)}
        self._taken.update(lives.values())
        found = ((name, rotation.live_of(name)) for name in names)
        return {lives[live] + name.removeprefix(live): folder / name for name, live in found}

    def _place(self, live: str, partition: int) -> str:
        path = self._names.untangled(live)
        if path in self._taken:
            path = self._names.untangled(self._layout.marked(live, f"..p{partition}"))
        return path


def finish(output: Path, summary: dict[str, object]) -> None:
    """Say that the replay is whole, on disk when this returns; raises OSError."""
    sync_folder(output)
    shutil.rmtree(output / STAGE, ignore_errors=True)
    _write_mark(output, {"state": "done", **summary})


def _write_mark(output: Path, entry: dict[str, object]) -> None:
    with open_folder(output) as folder, replacing(folder, _MARK, 0o644) as half:
        half.file.write(json.dumps({"version": 1, **entry}).encode() + b"\n")
