"""A stream's limit follows the disk while that is short, and comes back."""

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection, Rejected
from broker.retention.space import Disk, asked_for, limit_for
from broker.wire.streams import STREAM
from tests.broker.conftest import Broker, Mounted

SHORT, BETWEEN, WELL = Disk(49, 100), Disk(60, 100), Disk(100, 100)
MIB = 1024 * 1024


def info(limit: int, note: str, discard: str = "new") -> dict[str, Any]:
    metadata = {"owner": "ops", **({"logship.held_down": note} if note else {})}
    config = {"name": STREAM, "max_bytes": limit, "discard": discard, "metadata": metadata}
    return {"config": config, "state": {"bytes": 500}}


@pytest.mark.parametrize(
    ("limit", "note", "disk", "wanted"),
    [
        pytest.param(1000, "", WELL, None, id="well"),
        pytest.param(1000, "", BETWEEN, None, id="not yet short"),
        pytest.param(1000, "", SHORT, (500, "500 1000"), id="short"),
        pytest.param(-1, "", SHORT, (500, "500 -1"), id="short, and no limit"),
        pytest.param(400, "", SHORT, (400, "400 400"), id="short, and over its limit"),
        pytest.param(600, "600 1000", SHORT, (500, "500 1000"), id="still short, and less held"),
        pytest.param(500, "500 1000", BETWEEN, None, id="not yet well"),
        pytest.param(500, "500 1000", WELL, (1000, None), id="well again"),
        pytest.param(500, "500 -1", WELL, (-1, None), id="well again, and no limit"),
        pytest.param(500, "500 1000", None, (1000, None), id="nothing is to stay free any more"),
        pytest.param(700, "500 1000", WELL, None, id="changed by a person meanwhile"),
    ],
)
def test_the_limit_follows_the_disk(
    limit: int, note: str, disk: Disk | None, wanted: tuple[int, str | None] | None
) -> None:
    config = limit_for(info(limit, note), disk)

    found = config and (config["max_bytes"], config["metadata"].get("logship.held_down"))
    assert found == wanted
    assert config is None or config["metadata"]["owner"] == "ops"
    assert limit_for(info(1000, "", discard="old"), disk) is None  # it would drop lines


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        ({"max_bytes": -1}, -1),
        ({"max_bytes": 500}, 500),
        ({"max_bytes": 500, "metadata": {"logship.computed_max_bytes": "500"}}, None),
        ({"max_bytes": 300, "metadata": {"logship.held_down": "300 500"}}, 500),
    ],
)
def test_what_a_person_asked_for_is_no_limit_that_is_held_down_or_was_computed(
    config: dict[str, Any], asked: int | None
) -> None:
    assert asked_for(config).get("max_bytes") == asked


@pytest.mark.nats
def test_hosts_wait_while_somebody_else_fills_the_disk_and_go_on_after(
    tmp_path: Path, mounted: Mounted
) -> None:
    store = tmp_path / "disk"
    store.mkdir()
    within = mounted(f"mount -t tmpfs -o size={64 * MIB} tmpfs '{store}'")
    broker = Broker(store, tmp_path / "log", "--reserve", "16MiB", within=within)
    seen = Path(f"/proc/{broker.popen.pid}/root") / store.relative_to("/")
    broker.store = seen
    url = broker.wait_ready()["server"]

    async def publish() -> bool:
        connection = Connection([url], "tests")
        try:
            await connection.ask("logs.p0.web01", b"x" * 100_000)
        except Rejected:
            return False
        finally:
            await connection.close()
        return True

    def wait_until(expected: bool) -> None:
        deadline = time.monotonic() + 30
        while asyncio.run(publish()) is not expected:
            assert time.monotonic() < deadline, broker.said
            time.sleep(0.1)

    try:
        wait_until(True)
        (seen / "somebody-elses").write_bytes(bytes(shutil.disk_usage(seen).free - 6 * MIB))
        wait_until(False)
        assert shutil.disk_usage(seen).free > MIB
        (seen / "somebody-elses").unlink()
        wait_until(True)
    finally:
        broker.end()
    assert "are to stay free" in broker.said
