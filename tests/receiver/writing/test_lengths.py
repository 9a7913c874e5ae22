"""What is remembered of live files is a hint: damaged, it is forgotten, and never tells of hands that were not there."""

from pathlib import Path

from receiver.writing.lengths import Known, Lengths

LEFT = Known(inode=12, length=3456, number=7)


def saved(path: Path) -> bytes:
    with Lengths(path) as lengths:
        lengths.note("web01.log", LEFT)
    return path.read_bytes()


def test_what_was_left_is_known_by_the_next(tmp_path: Path) -> None:
    saved(tmp_path / "p0.lengths")

    lengths = Lengths(tmp_path / "p0.lengths")

    assert lengths.number("web01.log") == 7
    assert lengths.is_as_left("web01.log", LEFT) is False  # until the file is touched
    assert "is gone" in (lengths.difference("web01.log", None) or "")


def test_a_bit_that_changed_has_all_forgotten_and_nothing_told(tmp_path: Path) -> None:
    path = tmp_path / "p0.lengths"
    whole = saved(path)

    for place in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            with path.open(
                "r+b"
            ) as file:  # the same inode, or what it says of others would not count
                file.write(changed)
            lengths = Lengths(path)
            assert lengths.number("web01.log") in (0, 7), (place, bit)
            assert lengths.difference("web01.log", LEFT) is None, (place, bit)
