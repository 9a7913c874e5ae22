"""What a file is recognised by while it is read: any way of reading it gives the same."""

from hypothesis import given
from hypothesis import strategies as st

from shipper.positions import Cursor
from shipper.tail.identity import HEAD_BYTES, Fingerprint, identify

INODE = 7
NEW = Cursor("f1", "/log/a", 0, identify(INODE, b"", b""), 0)


@given(runs=st.lists(st.binary(min_size=1, max_size=2 * HEAD_BYTES), max_size=6))
def test_however_it_is_read_it_is_recognised_by_the_same_bytes(runs: list[bytes]) -> None:
    content = b"".join(runs)
    at_once, in_runs = Fingerprint(NEW, content[:1], b""), Fingerprint(NEW, content[:1], b"")

    if content:
        at_once.took(content)
    for run in runs:
        in_runs.took(run)

    assert at_once.identity(INODE) == in_runs.identity(INODE)
    assert content.endswith(in_runs.tail)
    assert content.startswith(in_runs.beginning)


def test_of_a_file_that_nothing_was_read_of_only_the_beginning_is_known() -> None:
    seen = Fingerprint(NEW, b"first", b"")

    seen.saw(b"first bytes")
    seen.saw(b"first")  # cut short since; what was seen stays known

    assert seen.beginning == b"first bytes"
    assert seen.identity(INODE) == NEW.identity


def test_a_position_that_is_taken_over_without_its_bytes_keeps_its_identity_until_more_is_read() -> (
    None
):
    identity = identify(3, b"one\n", b"one\n")
    known = Fingerprint(Cursor("f1", "/log/a", 4, identity, 0), b"one\n", b"")

    assert known.identity(INODE).tail_hash == identity.tail_hash
    assert known.identity(INODE).inode == INODE
    known.took(b"two\n")
    assert known.identity(INODE).tail_hash != identity.tail_hash


def test_a_hole_that_is_skipped_is_recognised_by_its_nuls() -> None:
    content = bytes(10) + b"line\n"
    skipped, read = Fingerprint(NEW, content, b""), Fingerprint(NEW, content, b"")

    skipped.skipped(10)
    read.took(bytes(10))

    assert skipped.identity(INODE) == read.identity(INODE)
