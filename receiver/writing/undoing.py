"""Takes back what a batch did to live files: made ones go, closed ones get their name again, longer ones are cut.

Only what the images of a journal tell of is touched, and every step may find that it was done before.
"""

import os
from collections.abc import Iterable, Mapping

from broker.app.faults import fault
from receiver.writing import rotation
from receiver.writing.folders import Folders
from receiver.writing.journal import PreImage
from receiver.writing.known import Damaged, Known, remains
from receiver.writing.numbers import Numbers

__all__ = ["undo"]

_FLAGS = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def undo(images: Iterable[PreImage], folders: Folders, numbers: Numbers) -> dict[str, str]:
    """Make files again what their images say, on disk when this returns; can be broken off and repeated.

    Returns what is to be told of those that other hands have taken, by name. Raises OSError, `Damaged`.
    """
    folders.look_again()
    segments: dict[str, dict[str, dict[int, str]]] = {}
    notices: dict[str, str] = {}
    for image in images:
        folder, _, name = image.name.rpartition("/")
        if folder not in segments:
            segments[folder] = numbers.segments(folder)
            folders.note_change(folder)
        with folders.naming(image.name):
            notice = _undo_one(image, segments[folder].get(name, {}), folders)
        fault("undoing")
        if notice:
            notices[image.name] = notice
    folders.sync()
    numbers.forget()
    return notices


def _undo_one(image: PreImage, segments: Mapping[int, str], folders: Folders) -> str | None:
    folder, _, live = image.name.rpartition("/")
    for number in sorted(segments, reverse=True):
        if number > image.number:
            os.unlink(segments[number], dir_fd=folders.open(folder))
    if image.number in segments:
        closed = rotation.closed_name(live, image.number)
        if segments[image.number] != closed:
            raise Damaged(
                f"{segments[image.number]} was compressed by somebody else before it was committed; unpack it "
                f"to {closed}"
            )
        opened = folders.open(folder)
        os.replace(closed, live, src_dir_fd=opened, dst_dir_fd=opened)
    if image.length is None:
        _remove(image.name, folders)
        return None
    return _truncate(image, image.length, folders)


def _remove(live: str, folders: Folders) -> None:
    try:
        name, opened = folders.at(live)
        os.unlink(name, dir_fd=opened)
    except FileNotFoundError:
        return  # that's fine: the batch broke off before it was made


def _truncate(image: PreImage, length: int, folders: Folders) -> str | None:
    found = folders.find(image.name)
    now = Known(found.st_ino, found.st_size, image.number) if found else None
    if notice := remains(image.name, image.inode, length, now):
        return notice
    name, opened = folders.at(image.name)
    descriptor = os.open(name, _FLAGS, dir_fd=opened)
    try:
        os.ftruncate(descriptor, length)
        os.utime(descriptor, ns=(image.moment, image.moment))  # or it would be too young to rotate
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return None
