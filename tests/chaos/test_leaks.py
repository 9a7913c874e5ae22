"""What the harness takes for a leak, and what not."""

import os
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

from tests.chaos.leaks import Leaks, Life, Seen, Vitals, grown, is_lost, left_over, lives, outbursts

CALM = Vitals(descriptors=30, threads=5, resident=60_000, sockets=3)


def seen(last: Vitals, first: Vitals | None = CALM, words: str = "logshipper") -> Seen:
    life = Life(7, 1, 2, False, words, last)
    return Seen(life, first, last, 3)


def test_a_process_that_holds_what_it_held_leaks_nothing() -> None:
    assert grown([seen(CALM), seen(CALM, None)]) == []


def test_descriptors_threads_and_memory_that_grow_are_found_each_by_name() -> None:
    swollen = Vitals(descriptors=100, threads=60, resident=600_000, sockets=40)

    findings = grown([seen(swollen)])

    found = [name for name in Vitals.__slots__ if any(f" {name} " in said for said in findings)]
    assert found == ["descriptors", "threads", "resident", "sockets"]
    assert len(findings) == 4
    assert grown([seen(swollen, None)]) == []


def test_pools_of_java_and_heaps_of_go_may_fill_and_no_more() -> None:
    pools = replace(CALM, threads=CALM.threads + 128)
    heap = replace(CALM, resident=CALM.resident + 300_000)

    found = [
        bool(grown([seen(last, CALM, words)]))
        for last in (pools, heap)
        for words in ("/bin/java -cp a", "/bin/nats-server -c b", "/bin/python shipper")
    ]

    assert found == [False, True, True, True, False, True]


def test_what_no_process_needs_is_found_in_a_fresh_one_too() -> None:
    (finding,) = grown([seen(Vitals(descriptors=2000, threads=5, resident=60_000), None)])

    assert "process 7 (logshipper) holds 2000 descriptors" in finding


def test_half_made_files_are_left_over_and_finished_ones_are_not(tmp_path: Path) -> None:
    scratch, state = tmp_path / "tmp", tmp_path / "state"
    for path in (scratch / "receiver" / "logreceiver-1", state / "quarantine"):
        path.mkdir(parents=True)
    for name in ("p0.db", "web.log", ".web.log.000001.zst.new", "p0.1a.tmp"):
        (state / name).touch()

    found = {words.split()[0].rpartition("/")[2] for words in left_over(scratch, state)}

    assert found == {"logreceiver-1", ".web.log.000001.zst.new", "p0.1a.tmp"}


def test_a_traceback_in_a_log_is_found_with_its_words(tmp_path: Path) -> None:
    calm, angry = tmp_path / "calm.log", tmp_path / "angry.log"
    calm.write_text("INFO: a line\n")
    angry.write_text('before\nTraceback (most recent call last):\n  File "a.py"\nKeyError: 1\n')

    assert outbursts(calm) == []
    (finding,) = outbursts(angry)
    assert "KeyError: 1" in finding


def test_a_process_whose_parent_has_died_is_found_when_it_stays() -> None:
    now = 0.0
    leaks = Leaks(lambda: now)
    script = "sleep 60 >&2 & echo $!"
    started = subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.PIPE)
    pid = int(started.stdout)
    try:
        leaks.look()
        early = list(leaks.findings)
        now = 100.0
        leaks.look()
        leaks.look()
    finally:
        os.kill(pid, signal.SIGKILL)

    assert not early
    assert len([words for words in leaks.findings if words.startswith(f"process {pid} ")]) == 1


def test_a_worker_whose_daemon_has_died_is_not_lost_while_the_jvm_lives_that_it_serves() -> None:
    words = "/bin/python -m receiver.spark.worker_daemon pyspark.worker"
    worker = Life(8, 1, 1, False, words, CALM, "/state/logreceiver-a")
    jvm = Life(7, 1, 2, False, "/bin/java -cp a", CALM, "/state/logreceiver-a")
    other = replace(jvm, pid=6, folder="/state/logreceiver-b")

    assert not is_lost(worker, [worker, jvm, other])
    assert is_lost(worker, [worker, other])
    assert is_lost(replace(worker, words="/bin/sleep 60"), [jvm])
    assert is_lost(replace(worker, is_zombie=True), [jvm])
    assert not is_lost(replace(worker, parent=5), [])


def test_what_a_process_holds_is_read_as_it_is() -> None:
    with (
        socket.socket() as held,
        subprocess.Popen(["sleep", "60"], pass_fds=[held.fileno()]) as started,
    ):
        try:
            (one,) = (life for life in lives() if life.pid == started.pid)
        finally:
            started.kill()

    assert (one.parent, one.is_zombie, one.vitals.threads) == (os.getpid(), False, 1)
    assert one.vitals.descriptors >= 4
    assert one.vitals.sockets >= 1
    assert one.program == "sleep"
    assert one.folder == str(Path.cwd())
    assert 0 <= one.age < 60
    assert 100 < one.vitals.resident < 100_000
