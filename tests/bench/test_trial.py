"""Systems that take turns: what becomes of one that drops a line, one that is late, one that is not there."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bench.drain import drain
from bench.field.copying import Copying
from bench.field.pair import Pair
from bench.field.peer import Peer
from bench.field.system import Guarantees, System
from bench.trial import Case, Outcome, tried, turns
from tests.support.oracle import Verdict
from tests.support.processes import Process, Processes, ProgramDied, TookTooLong

KEPT = Guarantees(acked=True, fsynced=True, ordered=True, survives_kill=True)
ANY_ORDER = Guarantees(acked=True, fsynced=True, ordered=False, survives_kill=True)
PERFECT = Verdict(9, 9)


def outcome(system: System, _folder: Path) -> Outcome:
    return Outcome({"MB/s": 1.0}, PERFECT)


def one(name: str, guarantees: Guarantees = KEPT) -> System:
    return Copying(name, guarantees)


def run(case: Case, systems: list[System], runs: int, folder: Path) -> tuple[list[str], list[str]]:
    said: list[str] = []
    results = tried(case, systems, runs, folder, said.append)
    return [result.void for result in results], said


def test_each_turn_begins_with_another() -> None:
    assert "".join(name for _, name in turns("ABC", 4)) == "ABCBCACABABC"
    assert list(turns((), 2)) == []


def test_all_take_turns(tmp_path: Path) -> None:
    voids, said = run(Case("c", {}, outcome), [one("a"), one("b")], 2, tmp_path)

    assert voids == ["", ""]
    assert [words for words in said if words.startswith("c")] == [
        "c, run 1: a",
        "c, run 1: b",
        "c, run 2: b",
        "c, run 2: a",
    ]


def test_where_we_are_measured_alone_the_others_are_not_asked(tmp_path: Path) -> None:
    voids, said = run(Case("c", {}, outcome, alone=True), [one("logship"), one("b")], 1, tmp_path)

    assert voids == [""]
    assert not any("b" in words.split() for words in said)


@dataclass(frozen=True, slots=True)
class Sieve:
    """A copy on which a line in the middle goes wrong: taken out, or put last."""

    script: str
    name: str = "sieve"
    guarantees: Guarantees = KEPT
    follows: bool = False
    centre: Mapping[str, Process] = field(default_factory=dict)

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        return "0"

    def stage(self, folder: Path, processes: Processes, address: str = "") -> "Staged":
        return Staged(self.script, folder, processes, {})


@dataclass(frozen=True, slots=True)
class Staged:
    script: str
    output: Path
    processes: Processes
    centre: Mapping[str, Process]

    def start_agent(self, host: str, logs: Path) -> Process:
        (source,) = logs.glob("*.log")
        words = f"{self.script.format(source)} > {self.output / host}.log; exec sleep 60"
        return self.processes.start("sieve", ["sh", "-c", words])

    def is_committed(self) -> bool:
        return True


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "app.log").write_bytes(b"".join(b"line %03d\n" % n for n in range(100)))
    return folder


def drained(system: System, logs: Path) -> tuple[str, int]:
    case = Case("c", {}, lambda system, folder: drain(system, folder, logs))
    (result,) = tried(case, [system], 1, logs.parent, print)
    return result.void, result.runs[0].reordered


def test_a_fast_result_with_a_line_missing_is_no_result(logs: Path) -> None:
    # a line twice makes up for the bytes of the one that is missing
    void, _ = drained(Sieve("sed '50d;51p' {}"), logs)

    assert void.startswith("no result, 1 of 1 runs: 100 written, 100 received: 1 missing, 1 repeat")


def test_a_copy_is_a_result(logs: Path) -> None:
    assert drained(one("cp"), logs) == ("", 0)


@pytest.mark.parametrize(
    ("guarantees", "void"),
    [
        pytest.param(KEPT, "no result", id="though order is promised"),
        pytest.param(ANY_ORDER, "", id="and order is not promised"),
    ],
)
def test_lines_that_are_out_of_order(logs: Path, guarantees: Guarantees, void: str) -> None:
    found, reordered = drained(
        Sieve("(sed '50d' {0}; sed -n '50p' {0})", guarantees=guarantees), logs
    )

    assert (found[: len("no result")], reordered) == (void, 1)


@pytest.mark.parametrize(
    ("survives", "void"),
    [
        pytest.param(True, "no result, 1 of 1 runs: 9 written, 8 received: 1 missing", id="though"),
        pytest.param(False, "", id="where it is not"),
    ],
)
def test_a_line_lost_in_a_kill_is_no_result_where_that_is_promised(
    tmp_path: Path, survives: bool, void: str
) -> None:
    lost = Verdict(9, 8, missing=1, bytes_equal=False)
    case = Case("c", {}, lambda *_: Outcome({"missing": 1.0}, lost), kills=True)
    promised = replace(KEPT, survives_kill=survives)

    (found,), _ = run(case, [one("a", promised)], 1, tmp_path)

    assert found[: len(void) or None] == void


@pytest.mark.parametrize(
    ("error", "runs"),
    [
        pytest.param(TookTooLong("all is received: not within 1 s\nlog"), 1, id="that is too late"),
        pytest.param(ProgramDied("it ended with 3"), 3, id="that dies"),
    ],
)
def test_a_run_has_no_result_and_the_others_go_on(
    tmp_path: Path, error: Exception, runs: int
) -> None:
    def measure(system: System, folder: Path) -> Outcome:
        if system.name == "bad":
            raise error
        return outcome(system, folder)

    results = tried(Case("c", {}, measure), [one("bad"), one("good")], 3, tmp_path, print)

    assert [len(result.runs) for result in results] == [runs, 3]
    told = " ... ".join(str(error).splitlines())
    assert results[0].void == f"no result, {runs} of {runs} runs: {told}"
    assert not results[1].void


def test_a_peer_that_is_not_installed_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    peer = Peer("absent", "no-such-program", lambda _: "", lambda _: "", lambda *_: [], "-v")

    voids, said = run(
        Case("c", {}, outcome), [Pair("absent", peer, KEPT, tmp_path), one("a")], 1, tmp_path
    )

    assert voids == ["absent: no-such-program is not on PATH, and no packages are unpacked", ""]
    assert (
        said[0]
        == "c: absent is absent: no-such-program is not on PATH, and no packages are unpacked"
    )
    assert not any("absent" in words for words in said[1:])


def test_what_only_copies_is_absent_where_files_grow(tmp_path: Path) -> None:
    voids, _ = run(Case("c", {}, outcome, grows=True), [one("cp")], 1, tmp_path)

    assert voids == ["absent: it follows no file that grows"]


def test_what_only_copies_is_absent_where_host_and_centre_are_apart(tmp_path: Path) -> None:
    voids, _ = run(Case("c", {}, outcome, far=True), [one("cp")], 1, tmp_path)

    assert voids == ["absent: it copies within one machine"]


def test_every_run_has_an_empty_folder(tmp_path: Path) -> None:
    def measure(system: System, folder: Path) -> Outcome:
        assert not list(folder.iterdir())
        (folder / "left").touch()
        return outcome(system, folder)

    tried(Case("c", {}, measure), [one("a"), one("b")], 2, tmp_path, print)

    assert not list(tmp_path.iterdir())
