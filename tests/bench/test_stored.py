"""What the stream holds is judged against the files, and what is wrong is named."""

from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.wire.subjects import Subject
from tests.support.stored import judge_stored

LINES = [b"%04d a line\n" % number for number in range(100)]
WRITTEN = b"".join(LINES)


async def stored(url: str, *payloads: bytes) -> None:
    connection = Connection([url], "test")
    for payload in payloads:
        await connection.ask(str(Subject.for_host("web01", 2)), payload)
    await connection.close()


async def test_what_was_written_is_found(logs_url: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(WRITTEN)
    await stored(logs_url, *LINES)

    verdict = await judge_stored(logs_url, "web01", 2, [tmp_path / "a.log"])

    assert verdict.is_perfect
    assert verdict.received == 100


@pytest.mark.parametrize(
    ("payloads", "what"),
    [
        pytest.param(LINES[:50] + LINES[51:], "missing", id="missing"),
        pytest.param([*LINES, LINES[-1]], "repeated", id="repeated"),
        pytest.param([LINES[1], LINES[0], *LINES[2:]], "reordered", id="reordered"),
        pytest.param([*LINES[:-1], LINES[-1][:6] + b"\n"], "torn", id="torn"),
        pytest.param([*LINES[:-1], b"0099 a lime\n"], "altered", id="altered"),
    ],
)
async def test_what_is_wrong_has_a_name(
    logs_url: str, tmp_path: Path, payloads: list[bytes], what: str
) -> None:
    (tmp_path / "a.log").write_bytes(WRITTEN)
    await stored(logs_url, *payloads)

    verdict = await judge_stored(logs_url, "web01", 2, [tmp_path / "a.log"])

    assert not verdict.is_perfect
    assert getattr(verdict, what) == 1
