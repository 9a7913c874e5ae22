"""The folder that a replay fills: taken only when it is empty or an unfinished replay's, and filled at the very end.

What is written lies under `.replaying` until all of it is on disk, and then takes its place name by name. `.replay.json`
says whether that is done; an unfinished replay is begun anew, and what it had put in place goes.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.folder import open_folder
from broker.app.whole import clear_away, replacing
from receiver.consume.place import MARKED
from receiver.replay.placing import Places, is_of
from receiver.storage.folders import Folders, make_folder
from receiver.storage.layout import Layout
from receiver.storage.opening import read, sync_folder
from receiver.storage.quarantine import FOLDER

__all__ = ["STAGE", "finish", "prepare", "publish_files", "write_in_place"]

STAGE = ".replaying"
_MARK = ".replay.json"
_DEFAULT = Layout()


def prepare(output: Path) -> Path:
    """Make `output` ready and return the folder under it to write into, which is empty.

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
        _begin_anew(output, names)
    elif names:
        raise ConfigurationError(
            f"{output} is not empty; a replay is written into a folder of its own"
        )
    _write_mark(output, {"state": "under way"})
    stage = output / STAGE
    stage.mkdir(mode=0o750)
    return stage


def _begin_anew(output: Path, names: list[str]) -> None:
    try:
        mark = json.loads(read(output / _MARK))
        done, placed = mark["state"] == "done", mark.get("placed", [])
        if template := mark.get("in_place"):
            layout = Layout(template)
            placed = [name for name in names if name == FOLDER or is_of(layout, output, name)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigurationError(f"{output / _MARK} is damaged; give an empty --output") from None
    if done:
        raise ConfigurationError(f"{output} holds a finished replay; give an empty --output")
    known = {_MARK, STAGE, *placed}
    if foreign := sorted(set(names) - known):
        raise ConfigurationError(
            f"{output} holds {foreign[0]} beside an unfinished replay; give an empty --output"
        )
    for name in (STAGE, *placed):
        path = output / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_in_place(output: Path, layout: Layout = _DEFAULT) -> None:
    """Say that files grow where they belong, in sight, from now on; raises OSError."""
    _write_mark(output, {"state": "under way", "in_place": layout.template})


def publish_files(
    output: Path, attempts: list[tuple[int, Path]], layout: Layout = _DEFAULT
) -> list[str]:
    """Move the files of attempts (partition, folder) to their places, and return where they are.

    Raises OSError, and OperatorError when a folder is not seen here.
    """
    moves: dict[str, Path] = {}
    places = Places(layout)
    for partition, folder in attempts:
        if not folder.is_dir():
            raise OperatorError(
                f"{folder} was written by a task but is not seen here; --output must be a folder that all "
                "executors share"
            )
        moves |= places.of(partition, folder)
        for path in (folder / FOLDER).glob("*.msg"):
            moves[f"{FOLDER}/{path.name}"] = path
    tops = sorted({name.partition("/")[0] for name in moves})
    _write_mark(output, {"state": "under way", "placed": tops})
    _move(moves, output)
    return sorted(moves)


def _move(moves: Mapping[str, Path], output: Path) -> None:
    folders = Folders(output)
    try:
        for name, path in moves.items():
            folder = name.rpartition("/")[0]
            folders.make(folder)
            folders.note_change(folder)
            path.rename(output / name)
        folders.sync()
    finally:
        folders.close()


def finish(output: Path, summary: dict[str, object]) -> None:
    """Say that the replay is whole, on disk when this returns; raises OSError."""
    sync_folder(output)
    shutil.rmtree(output / STAGE, ignore_errors=True)
    _write_mark(output, {"state": "done", **summary})


def _write_mark(output: Path, entry: dict[str, object]) -> None:
    with open_folder(output) as folder, replacing(folder, _MARK, 0o644) as half:
        half.file.write(json.dumps({"version": 1, **entry}).encode() + b"\n")
