"""What is said of files that were found, truncated, damaged or passed over. Makes notices; decides nothing."""

from shipper.files.sighting import Sighting
from shipper.notice import Notice, NoticeKind

__all__ = ["aged", "begun", "damaged", "goes_on", "hole", "renewed", "truncated"]


def begun(sighting: Sighting, offset: int) -> Notice:
    """Say that a file is followed, and from which byte on."""
    place = f"byte {offset}, behind its last line" if offset else "its beginning"
    return Notice(NoticeKind.FOUND, sighting.path, f"is followed from {place}")


def goes_on(sighting: Sighting, offset: int) -> Notice:
    """Say that a file is one that we know."""
    return Notice(NoticeKind.FOUND, sighting.path, f"goes on at byte {offset}")


def hole(sighting: Sighting, start: int) -> Notice:
    """Say that a file is followed from behind the hole that it begins with."""
    text = f"begins with a hole of {start} bytes: its writer kept its offset when the file was"
    return Notice(NoticeKind.FOUND, sighting.path, f"{text} truncated; it is followed from there")


def renewed(sighting: Sighting) -> Notice:
    """Say that an open file without a name has other content than the one that was read."""
    text = "was written anew before it was deleted; that is read"
    return Notice(NoticeKind.FOUND, sighting.path, text)


def aged(sighting: Sighting) -> Notice:
    """Say that a file is not followed."""
    text = "was not written for longer than --ignore-older; it is followed once it is"
    return Notice(NoticeKind.AGED, sighting.path, text)


def damaged(sighting: Sighting, reached: int, damage: str) -> Notice:
    """Say from where on a compressed file is of no use."""
    text = f"is damaged behind byte {reached} ({damage}): what was not read before is lost"
    return Notice(NoticeKind.DAMAGED, sighting.path, text)


def truncated(sighting: Sighting, lost: int, copy: Sighting | None) -> Notice:
    """Say that what was read of a file is gone, and where its rest is read from; else `lost` bytes were not read."""
    if copy is not None:
        text = f"was truncated; its rest is read from {copy.path}"
        return Notice(NoticeKind.TRUNCATED, sighting.path, text)
    text = f"was truncated or written anew; {lost} bytes were seen in it and not read"
    return Notice(NoticeKind.TRUNCATED, sighting.path, text, lost)
