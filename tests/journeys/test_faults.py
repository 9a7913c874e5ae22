"""What no round of kills shows: a broker that is set back."""

from pathlib import Path

import pytest

from tests.support.processes import wait_until
from tests.support.stage import Stage

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(360)]


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
