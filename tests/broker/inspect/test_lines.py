"""Lines as they are shown: each behind the name of its host, and none of them acting on a terminal."""

import pytest

from broker.inspect.message import safe
from broker.inspect.tail import as_shown


def test_a_host_whose_subject_holds_codes_does_not_act_on_a_terminal_either() -> None:
    shown = as_shown("logs.\x1b[2J.w\udcff", b"a\n", prefixed=True, for_terminal=True)

    assert shown == rb"logs.\x1b[2J.w\xff: a" + b"\n"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        pytest.param(b"a\tb\n", b"a\tb\n", id="tabs and newlines"),
        pytest.param("Grüße €\n".encode(), "Grüße €\n".encode(), id="letters"),
        pytest.param(b"\x1b]0;owned\x07\n", rb"\x1b]0;owned\x07" + b"\n", id="escape codes"),
        pytest.param("\x9b31m\n".encode(), rb"\x9b31m" + b"\n", id="codes of one character"),
        pytest.param(b"\x9b31m\n", rb"\x9b31m" + b"\n", id="codes that are no UTF-8"),
        pytest.param(b"progress 10%\r\n", rb"progress 10%\r" + b"\n", id="a return"),
        pytest.param("a\u202eb\n".encode(), rb"a\u202eb" + b"\n", id="written backwards"),
    ],
)
def test_nothing_acts_on_a_terminal(raw: bytes, shown: bytes) -> None:
    assert safe(raw) == shown
