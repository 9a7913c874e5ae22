"""The images are built without a network, and lines pass through them exactly once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.engine import BASE, Engine, read_services, reason_not_to_run, running
from tests.support.oracle import expect_all
from tests.support.processes import wait_until
from tests.support.received import received_bytes
from tests.support.traffic import Traffic

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(reason_not_to_run()), reason=reason_not_to_run()),
]
HOST = "node-1"
ROOT = Path(__file__).parents[2]
OWNER = 10001  # of the data of broker and receiver


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("images")
    wheelhouse = Path(os.environ.get("ROLLOUT_WHEELHOUSE", folder / "wheelhouse"))
    if not wheelhouse.is_dir():
        python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
        make = ["make", "-C", ROOT, "wheelhouse", f"WHEELHOUSE={wheelhouse}", f"PYTHON={python}"]
        subprocess.run(make, check=True, capture_output=True, timeout=1200)
    with running(folder / "engine") as engine:
        engine.make_base()
        engine.build(wheelhouse)
        yield engine


def test_a_shipper_is_small_and_runs_as_nobody_without_a_java(engine: Engine) -> None:
    image = read_services({})["shipper"]["image"]
    find = "find /opt /usr -name java -o -name pyspark -o -name 'nats-server*' -o -name pip"
    found = engine.call(
        *("podman", "run", "--rm", "--pull=never", "--ulimit=host"),
        *("--entrypoint", "sh", image, "-c", find),
    )

    assert engine.inspect(image)["Config"]["User"] == "65534:65534"
    assert found == ""
    assert engine.size(image) - engine.size(BASE) < 80_000_000


def test_containers_that_are_killed_and_replaced_pass_on_each_line_once(
    engine: Engine, tmp_path: Path
) -> None:
    folders = {name: tmp_path / name for name in ("store", "received", "logs")}
    for path in folders.values():
        _make_volume(path)
    (tmp_path / "nodename").write_text(f"{HOST}\n")
    given = {f"LOGSHIP_{name.upper()}": path for name, path in folders.items()}
    given["LOGSHIP_HOST_FILE"] = tmp_path / "nodename"
    log, output = folders["logs"] / "app.log", folders["received"]

    try:
        with Traffic([log], 400) as traffic:
            for service in ("broker", "receiver", "shipper"):
                engine.run(service, given)
            _expect_flow(traffic, output)
            for service in ("shipper", "broker", "shipper", "receiver"):
                engine.kill(service)
                if service == "shipper":
                    traffic.rotate(log)
                engine.run(service, given)
                _expect_flow(traffic, output)
        expect_all(output, {HOST: [traffic.written[log]]})
    finally:
        print(engine.logs())  # noqa: T201 - shown if the test fails
    shipper = engine.inspect("shipper")
    assert shipper["HostConfig"]["ReadonlyRootfs"]
    assert {mount["Destination"]: mount["RW"] for mount in shipper["Mounts"]} == {
        "/var/log": False,
        "/etc/nodename": False,
    }
    codes = {name: engine.stop(name) for name in ("shipper", "receiver", "broker")}
    assert codes == {"shipper": 0, "receiver": 0, "broker": 0}


def _make_volume(path: Path) -> None:
    """Make a folder as Kubernetes makes a volume with `fsGroup`, on a disk of its own."""
    path.mkdir()
    os.chown(path, 0, OWNER)
    path.chmod(0o2775)
    (path / "lost+found").mkdir(0o700)


def _expect_flow(traffic: Traffic, output: Path) -> None:
    """Wait until all that was written up to now is received."""
    written = sum(map(len, traffic.written.values()))
    wait_until("lines flow", lambda: received_bytes(output, HOST) >= written, 120)
