import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import Processes, wait_until
from bench.received import segments_of
from bench.stage import Stage
from bench.suite import Suite
from bench.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(360)]


@pytest.fixture(scope="module")
def rotating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("rotating")
    with Processes(folder) as programs:
        suite = Suite(folder, programs, partitions=2)
        yield Stage(suite, "--rotate-size", "100kB", "--compress", "zstd")


def test_received_files_are_rotated_by_size_and_packed_and_lose_nothing_when_killed(
    rotating: Stage,
) -> None:
    host = "big01"
    file = rotating.host_folder(host) / "app.log"
    shipper = rotating.suite.start_shipper(host, [file])

    with Traffic([file], 3000) as traffic:
        for _ in range(2):
            time.sleep(1.5)
            rotating.receiver.kill()
            rotating.receiver.start()
            rotating.wait_for_receiver()

    def packed() -> list[Path]:
        try:
            closed = segments_of(rotating.suite.output, host)[:-1]
        except ValueError:
            return []  # for a moment a segment is there plain and packed
        return [path for path in closed if path.suffix == ".zst"]

    size = len(traffic.written[file])
    wait_until("all is received", lambda: rotating.received_size(host) >= size, 150)
    wait_until("closed segments are packed", lambda: len(packed()) >= 3, 90)
    assert shipper.stop(10) == 0
    assert (
        rotating.receiver.stop(10) == 0
    )  # from here on no segment is exchanged for its packed form

    verdict = rotating.verdict(host, [traffic.written[file]])
    assert verdict.is_perfect, str(verdict)
