"""A copy is remembered by what it begins with, since its inode may be another file's by the next look."""

from shipper.tail.memory import Copies
from shipper.tail.scan import FileKey

KEY = FileKey(1, 7)


def test_a_copy_that_grew_is_still_the_copy() -> None:
    copies = Copies()

    copies.note(KEY, b"one\n", "f")

    assert copies.original(KEY, b"one\ntwo\n") == "f"


def test_another_file_on_the_same_inode_is_no_copy() -> None:
    copies = Copies()
    copies.note(KEY, b"one\n", "f")

    assert copies.original(KEY, b"two\n") is None

    copies.note(KEY, b"two\n", "g")
    assert copies.original(KEY, b"two\n") == "g"


def test_the_first_original_stands_when_another_file_is_live_since() -> None:
    copies = Copies()
    copies.note(KEY, b"one\n", "f")

    copies.note(KEY, b"one\n", "g")

    assert copies.original(KEY, b"one\n") == "f"


def test_a_copy_that_is_followed_or_gone_is_forgotten() -> None:
    copies = Copies()
    copies.note(KEY, b"one\n", "f")
    copies.keep({KEY})
    assert copies.original(KEY, b"one\n") == "f"

    copies.keep(())
    assert copies.original(KEY, b"one\n") is None

    copies.note(KEY, b"one\n", "f")
    copies.forget(KEY)
    assert copies.original(KEY, b"one\n") is None
