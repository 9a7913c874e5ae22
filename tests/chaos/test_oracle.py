"""The judge of most journeys counts each kind of harm under its own name, and nothing else."""

import errno
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Container
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.consume.assignment import Done, Ending, Report
from receiver.meter import Meter
from receiver.storage.anomalies import Anomaly, AnomalyKind, name_gap_report
from tests.chaos.received import Received, count_divided, losses, repeats
from tests.chaos.tails import Tail, Tails
from tests.support.oracle import Verdict, judge, judge_host
from tests.support.received import read_segment


def source(tag: str, count: int) -> list[bytes]:
    return [f"{tag} {n:06d} GET /item/{n * 7919 % 1009} 200\n".encode() for n in range(count)]


Damage = Callable[[bytes, bytes, bytes], list[bytes]]
"""What becomes of three lines."""
DAMAGES: dict[tuple[str, ...], Damage] = {
    ("missing",): lambda a, b, c: [b, c],
    ("repeated",): lambda a, b, c: [a, a, b, c],
    ("reordered",): lambda a, b, c: [b, c, a],
    ("missing", "torn"): lambda a, b, c: [a[: len(a) // 2] + b"\n", b, c],
    ("missing", "foreign"): lambda a, b, c: [a[:15] + b"\x01" + a[16:], b, c],
    ("foreign",): lambda a, b, c: [b"nobody wrote me before " + a, a, b, c],
}


def counts(verdict: Verdict) -> dict[str, int]:
    kinds = ("missing", "repeated", "reordered", "torn", "foreign")
    return {kind: count for kind in kinds if (count := getattr(verdict, kind))}


@settings(max_examples=150, deadline=None)
@given(
    damages=st.lists(st.sampled_from([*DAMAGES]), max_size=12),
    sources=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_every_one_of_many_damages_is_counted_under_its_own_name(
    damages: list[tuple[str, ...]], sources: int, seed: int
) -> None:
    chance = random.Random(seed)
    written = [source(f"file{n}", 400) for n in range(sources)]
    damaged = [lines.copy() for lines in written]
    # far enough apart not to touch each other
    places = chance.sample(range(5, 395, 15), len(damages))

    for damage, at in sorted(zip(damages, places, strict=True), key=lambda pair: -pair[1]):
        lines = chance.choice(damaged)
        lines[at : at + 3] = DAMAGES[damage](*lines[at : at + 3])
    verdict = judge([b"".join(lines) for lines in written], interleave(damaged, chance))

    assert counts(verdict) == Counter(kind for damage in damages for kind in damage)
    assert verdict.bytes_equal == verdict.is_perfect == (not damages)


def interleave(files: list[list[bytes]], chance: random.Random) -> bytes:
    rest = [lines.copy() for lines in files]
    result = []
    while any(rest):
        lines = chance.choice([lines for lines in rest if lines])
        run = chance.randrange(1, 9)
        result += lines[:run]
        del lines[:run]
    return b"".join(result)


LINES = source("a", 100)
BLANK = [b"a line\n", b"\n", b"line 3!\n"]
SHARED = [[b"a1\n", b"\n", b"a2\n"], [b"b1\n", b"\n", b"b2\n"]]  # a line judged by its count
HARMS: tuple[tuple[list[list[bytes]], list[bytes], dict[str, int]], ...] = (
    ([LINES], [], {"missing": 100}),
    ([LINES], LINES[:60] + LINES[40:], {"repeated": 20}),
    ([LINES], LINES[50:] + LINES[:50], {"reordered": 50}),
    # run together; half, then whole; no newline at the end
    ([LINES], [*LINES[:5], LINES[5][:-1], *LINES[6:]], {"missing": 2, "torn": 1}),
    ([LINES], [*LINES[:9], LINES[9][:11], *LINES[9:]], {"missing": 1, "torn": 1}),
    ([LINES], [*LINES[:-1], LINES[-1][:-1]], {"missing": 1, "torn": 1}),
    ([BLANK], [b"a line\n", b"\n", b"line 3#\n"], {"missing": 1, "foreign": 1}),
    (SHARED, [b"a1\n", b"b1\n", b"\n", b"\n", b"b2\n", b"a2\n"], {}),
    (SHARED, [b"a1\n", b"b1\n", b"\n", b"b2\n", b"a2\n"], {"missing": 1}),
    (SHARED, [b"a1\n", b"b1\n", b"\n", b"\n", b"\n", b"b2\n", b"a2\n"], {"repeated": 1}),
)


@pytest.mark.parametrize(("sources", "received", "found"), HARMS)
def test_harm_has_its_name(
    sources: list[list[bytes]], received: list[bytes], found: dict[str, int]
) -> None:
    verdict = judge([b"".join(lines) for lines in sources], b"".join(received))

    assert counts(verdict) == found
    assert verdict.bytes_equal == verdict.is_perfect == (not found)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([b"x\n", b"y\n", b"\n"]), max_size=40), st.data())
def test_lines_that_are_all_alike_are_judged_too(lines: list[bytes], data: st.DataObject) -> None:
    received = [line for line in lines if data.draw(st.booleans())]

    verdict = judge([b"".join(lines)], b"".join(received))

    assert verdict.missing == len(lines) - len(received)
    assert verdict.repeated == verdict.reordered == 0


OUTPUT = {
    "web01.log.000002.zst": zstandard.compress(b"two\n"),
    "web01.log.000010": b"three\n",
    "web01.log.000001": b"one\n",
    "web01.log": b"four\n",
    "web01.log.x": b"not a segment\n",
    "web01.log.de.log": b"another host\n",
    "app.log": b"one\ntwo\nthree\nfour\n",
}


def test_segments_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name, content in OUTPUT.items():
        (tmp_path / name).write_bytes(content)
    written = tmp_path / "app.log"

    assert judge_host([written], tmp_path, "web01").is_perfect
    (tmp_path / "web01.log.000002").write_bytes(b"two\n")
    with pytest.raises(ValueError, match="segment 2 of web01 is there twice"):
        judge_host([written], tmp_path, "web01")


class Live:
    """A live file of a receiver that a reader follows."""

    def __init__(self, folder: Path) -> None:
        self.path, self.number = folder / "web01.log", 0
        self.rest = iter(source("a", 1000))
        self.tail = Tail(folder, "web01")

    def write(self, lines: int = 10) -> None:
        with self.path.open("ab") as file:
            file.writelines(itertools.islice(self.rest, lines))

    def write_half(self) -> None:
        half = next(self.rest)[:9]
        self.rest = iter([b" and the rest\n", *self.rest])
        with self.path.open("ab") as file:
            file.write(half)

    def poll(self) -> None:
        self.tail.poll()

    def rotate(self) -> None:
        if self.path.exists():
            self.number += 1
            self.path.rename(f"{self.path}.{self.number:06d}")

    def compress(self) -> None:
        for path in self.path.parent.glob("*.log.??????"):
            Path(f"{path}.zst").write_bytes(zstandard.compress(path.read_bytes()))
            path.unlink()

    def break_disk(self) -> None:
        raise OSError(errno.EIO, "cannot be read", str(self.path))

    def cut(self) -> None:
        self.poll()
        self.show([])

    def replace(self) -> None:
        self.poll()
        self.path.rename(self.path.with_name("old"))
        self.path.write_bytes(self.path.with_name("old").read_bytes())

    def show(self, lines: list[bytes]) -> None:
        """Let the reader see other lines; afterwards the file is well."""
        whole = self.path.read_bytes()
        self.path.write_bytes(b"".join(lines))
        self.poll()
        self.path.write_bytes(whole)


STEPS = (Live.write, Live.write_half, Live.poll, Live.rotate, Live.compress)
TEN = source("a", 10)
SEEN: dict[str, tuple[Callable[[Live], None], dict[str, int]]] = {
    "cut": (Live.cut, {"repeated": 10}),
    "replaced": (Live.replace, {"repeated": 10}),
    "swapped": (lambda live: live.show(TEN[5:] + TEN[:5]), {"reordered": 5}),
    "altered": (
        lambda live: live.show([b"#" * 14 + TEN[0][14:], *TEN[1:]]),
        {"missing": 1, "foreign": 1},
    ),
    "torn": (
        lambda live: live.show([TEN[0][:9] + b"\n", *TEN[1:], b" " * (len(TEN[0]) - 11) + b"\n"]),
        {"missing": 1, "torn": 1, "foreign": 1},
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_only_a_reader_has_seen_is_counted_under_its_name(tmp_path: Path, name: str) -> None:
    live, (harm, found) = Live(tmp_path), SEEN[name]

    for step in (Live.write, harm, Live.write, Live.rotate, Live.write, Live.poll):
        step(live)

    assert live.path.read_bytes() == b"".join(source("a", 30)[20:])
    assert counts(live.tail.judge()) == found
    live.tail.close()


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=40))
def test_a_reader_follows_files_through_rotations(steps: list[Callable[[Live], None]]) -> None:
    with TemporaryDirectory() as folder:
        live = Live(Path(folder))

        for step in (Live.write, *steps, Live.write, Live.poll):
            step(live)

        verdict = live.tail.judge()
        live.tail.close()
    assert verdict.is_perfect
    assert verdict.received > 0


@pytest.mark.parametrize("step", [Live.rotate, Live.compress, Live.break_disk])
def test_followers_begin_anew_after_a_rest_whatever_becomes_of_the_files_while_they_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Callable[[Live], None]
) -> None:
    live, tails, steps = Live(tmp_path), Tails(tmp_path, ["web01"]), [step]

    def read(path: Path) -> bytes:
        while steps:
            steps.pop()(live)
        return read_segment(path)

    monkeypatch.setattr("tests.chaos.tails.read_segment", read)
    tails.start()
    for before in (Live.write, Live.rotate, Live.write):
        before(live)

    with (
        nullcontext() if step != Live.break_disk else pytest.raises(OSError, match="read"),
        tails.rest(),
    ):
        pass
    tails.go_on()
    live.write()

    assert (tails.stop()["web01"].is_perfect, tails.findings, steps) == (True, [], [])


def test_losses_and_repeated_lines_that_receivers_report_are_findings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = '{"kind":"gap","host":"web01"}\n{"kind":"loss","host":"web01"}\n'
    (tmp_path / name_gap_report(1)).write_text(told, "utf-8")
    anomaly = Anomaly(AnomalyKind.REPEAT, "web01", "/var/log/app.log", "f1", 10, 30, 7, 0)
    report = Report(Done(0, 1, 8, anomalies=(anomaly,)), 1, Ending.SILENCE)
    Meter(lambda: 0).expect(0).count(report)
    (tmp_path / "receiver-one.log").write_text(caplog.text, "utf-8")
    (tmp_path / "receiver-two.log").write_text("nothing to report\n", "utf-8")

    found = [one.partition(":")[0] for one in losses(tmp_path, {})]
    assert found == ["reported, and nothing was lost"] * 2
    (repeat,) = repeats(tmp_path)
    assert repeat.startswith("receiver-one was sent lines again 1 times: repeat of 20 bytes")


@pytest.mark.parametrize(
    ("gap", "deleted", "findings"),
    [
        ((4, 7, "entries"), range(3, 8), 0),
        ((4, 9, "entries"), range(3, 8), 1),
        ((4, 7, "entries"), (), 1),
        ((4, 7, "bytes"), range(3, 8), 1),
    ],
)
def test_only_gaps_of_entries_that_were_deleted_are_no_findings(
    tmp_path: Path, gap: tuple[int, int, str], deleted: Container[int], findings: int
) -> None:
    fields = {"kind": "gap", "host": "web01", "start": gap[0], "end": gap[1], "unit": gap[2]}
    (tmp_path / name_gap_report(1)).write_text(json.dumps(fields) + "\n", "utf-8")

    assert len(losses(tmp_path, {"web01": deleted})) == findings
    assert Received(tmp_path).lost("web01") == (
        set(range(*gap[:2])) if gap[2] != "bytes" else set()
    )


RECORDS = b"one\n  at a\n\ntwo\n  at b\n  at c\nthree\n"


@pytest.mark.parametrize(
    ("received", "halts", "divided"),
    [
        (b"other\n" + RECORDS, (), 0),
        (RECORDS.replace(b"two", b"other\ntwo"), (), 0),
        (RECORDS.replace(b"  at c", b"other\n  at c"), (), 1),
        (RECORDS.replace(b"  at c", b"other\n  at c"), (24,), 0),
        (RECORDS.replace(b"  at c", b"other\n  at c"), (12,), 1),
    ],
)
def test_records_with_other_lines_between_are_found(
    received: bytes, halts: tuple[int, ...], divided: int
) -> None:
    assert count_divided(RECORDS, halts, received) == divided
