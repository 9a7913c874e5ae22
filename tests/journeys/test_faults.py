import os
import signal
import time
from pathlib import Path

import pytest

from bench.processes import wait_until
from bench.stage import Stage
from bench.traffic import Traffic
from tests.positions import delete_positions, has_positions
from tests.receiver.partition import ask

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(360)]


def test_a_receiver_that_was_away_catches_up(stage: Stage) -> None:
    file = stage.host_folder("away01") / "app.log"
    shipper = stage.suite.start_shipper("away01", [file])

    stage.receiver.kill()
    with Traffic([file], 5000) as traffic:
        time.sleep(3)
        before = stage.received_size("away01")
        stage.receiver.start()
        time.sleep(1)

    assert before == 0
    verdict = stage.verdict("away01", [traffic.written[file]])
    assert verdict.is_perfect, str(verdict)
    assert shipper.stop(10) == 0


def test_a_broker_that_was_away_loses_nothing(stage: Stage) -> None:
    file = stage.host_folder("away02") / "app.log"
    shipper = stage.suite.start_shipper("away02", [file])

    with Traffic([file], 2000) as traffic:
        time.sleep(0.7)
        stage.broker.kill()
        time.sleep(2)
        stage.broker.start()
        time.sleep(1)

    verdict = stage.verdict("away02", [traffic.written[file]])
    assert verdict.is_perfect, str(verdict)
    assert shipper.stop(10) == 0


def test_lost_positions_are_rebuilt_from_the_stream(stage: Stage) -> None:
    folder = stage.host_folder("lost01")
    files = [folder / "app.log", folder / "access.log"]
    shipper = stage.suite.start_shipper("lost01", files)

    with Traffic(files, 1000) as traffic:
        wait_until(
            "positions are kept",
            lambda: ask(stage.suite.url, lambda c: has_positions(c, "lost01")),
            90,
            [shipper],
        )
        shipper.kill()
        ask(stage.suite.url, lambda c: delete_positions(c, "lost01"))
        shipper.start()
        time.sleep(1)

    verdict = stage.verdict("lost01", list(traffic.written.values()))
    assert verdict.is_perfect, str(verdict)
    assert shipper.stop(10) == 0


def test_a_killed_spark_worker_is_replaced_and_its_work_done_again(stage: Stage) -> None:
    file = stage.host_folder("worker01") / "app.log"
    shipper = stage.suite.start_shipper("worker01", [file])
    killed = []

    with Traffic([file], 2000) as traffic:
        wait_until("lines arrive", lambda: stage.received_size("worker01") > 0, 60)
        for _ in range(3):
            workers = stage.spark_workers()
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            killed += workers
            time.sleep(1)

    assert killed
    verdict = stage.verdict("worker01", [traffic.written[file]])
    assert verdict.is_perfect, str(verdict)
    assert stage.receiver.is_running()
    assert shipper.stop(10) == 0


def test_a_worker_holds_nothing_that_only_the_driver_needs(stage: Stage) -> None:
    file = stage.host_folder("worker02") / "app.log"
    shipper = stage.suite.start_shipper("worker02", [file])
    file.write_text("a line\n")

    wait_until("it arrives", lambda: stage.received_size("worker02") > 0, 120, [stage.receiver])
    loaded = [Path(f"/proc/{pid}/maps").read_text() for pid in stage.spark_workers()]

    assert loaded
    assert not [maps for maps in loaded if "pydantic_core" in maps]
    assert shipper.stop(10) == 0


def test_source_files_that_are_rotated_under_load_are_read_to_their_end(stage: Stage) -> None:
    folder = stage.host_folder("rotate01")
    files = [folder / "app.log", folder / "access.log"]
    shipper = stage.suite.start_shipper("rotate01", [f"{folder}/*.log*"])

    with Traffic(files, 2000) as traffic:
        for number in range(6):
            time.sleep(0.4)
            traffic.rotate(files[0])
            if number == 2:
                shipper.kill()
            if number == 4:
                traffic.rotate(files[0])
                traffic.rotate(files[1])
                shipper.start()

    verdict = stage.verdict("rotate01", list(traffic.written.values()))
    assert verdict.is_perfect, str(verdict)
    assert shipper.stop(10) == 0


def test_the_older_of_two_shippers_of_a_host_is_stopped_and_nothing_is_stored_twice(
    stage: Stage,
) -> None:
    file = stage.host_folder("twice01") / "app.log"
    older = stage.suite.start_shipper("twice01", [file])

    with Traffic([file], 500) as traffic:
        wait_until("lines arrive", lambda: stage.received_size("twice01") > 0, 60, [older])
        newer = stage.suite.start_shipper("twice01", [file], "--take-over")
        code = older.wait(60)

    assert code == 78
    assert "Traceback" not in older.said()
    verdict = stage.verdict("twice01", [traffic.written[file]])
    assert verdict.is_perfect, str(verdict)
    assert newer.stop(10) == 0


def test_a_broker_set_back_to_a_backup_repeats_nothing_and_everybody_goes_on(
    stage: Stage, tmp_path: Path
) -> None:
    file = stage.host_folder("back01") / "app.log"
    shipper = stage.suite.start_shipper("back01", [file])

    def write(part: int) -> None:
        with file.open("ab") as log:
            log.write(b"".join(b"line %02d %04d\n" % (part, n) for n in range(500)))
        wait_until(
            f"part {part} is received",
            lambda: stage.received_size("back01") == file.stat().st_size,
            150,
            [shipper, stage.receiver, stage.broker],
        )

    write(1)
    stage.suite.administer("backup", str(tmp_path))
    write(2)
    stage.suite.administer("restore", str(tmp_path), "--replace", "--yes")
    write(3)

    verdict = stage.verdict("back01", [file.read_bytes()])
    assert verdict.is_perfect, str(verdict)
    assert shipper.stop(10) == 0
