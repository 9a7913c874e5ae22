"""How a peer's lines are followed, and what every suite is struck by; no peer is started."""

from pathlib import Path

from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.peers.run import COMMON, Tail, numbers_in


def test_how_far_lines_have_come_is_told_for_each_log_whatever_their_order_is() -> None:
    text = (
        b"app 00000007 seven\nb 00000001 one\napp 00000006 six\nno line of a log\napp 00000008 ei"
    )

    assert numbers_in(text) == {b"app": 7, b"b": 1}


def test_a_growing_file_is_read_on_from_where_its_last_whole_line_ended(tmp_path: Path) -> None:
    path = tmp_path / "web01.log"
    tail = Tail(path)

    assert tail.read() == {}

    path.write_bytes(b"app 00000007 seven\napp 000000")
    assert tail.read() == {b"app": 7}

    with path.open("ab") as file:
        file.write(b"08 eight\n")
    assert tail.read() == {b"app": 8}


def test_every_suite_can_be_struck_by_the_common_kinds() -> None:
    for name in (name for names in COMMON.values() for name in names):
        kind = CATALOGUE[name]

        assert kind.needs <= {"shaping", "blocks"}
        assert not kind.destroys
