"""Secrets in files of their own: made for their owner's eyes only, and never over a file that is there unless told so."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.folder import open_folder
from broker.app.whole import write_whole

__all__ = ["Sheet", "hand_over", "take_back"]

_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Sheet:
    """A file to be: where, and what stands in it."""

    path: Path
    text: str = field(repr=False)


def hand_over(sheets: Sequence[Sheet], force: bool) -> None:
    """Write the files, all or none; raises `OperatorError`, also for one that is there already unless `force`."""
    written: list[Sheet] = []
    try:
        for sheet in sheets:
            _write(sheet, force)
            written.append(sheet)
    except OperatorError:
        take_back(written)
        raise


def take_back(sheets: Sequence[Sheet]) -> None:
    """Remove the files, whose secrets turned out to be of no use."""
    for sheet in sheets:
        with suppress(OSError), open_folder(sheet.path.parent) as folder:
            folder.remove(sheet.path.name)


def _write(sheet: Sheet, force: bool) -> None:
    if force:
        write_whole(sheet.path, sheet.text, _MODE)
        return
    try:
        with open_folder(sheet.path.parent) as folder:
            descriptor = folder.open(sheet.path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        raise OperatorError(
            f"{sheet.path} is there already; --force replaces it, --output names another file"
        ) from None
    except OSError as error:
        raise OperatorError(
            f"cannot write {sheet.path}: {error.strerror}; check --output"
        ) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(sheet.text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        take_back([sheet])
        raise OperatorError(
            f"cannot write {sheet.path}: {error.strerror}; check --output"
        ) from None
