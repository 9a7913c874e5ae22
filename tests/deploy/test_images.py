"""The images are built without a network, and lines pass through them exactly once."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.engine import BASE, Engine, read_services, reason_not_to_run, running
from tests.deploy.pods import NODE, PAGE, PODS, make_secrets, secret_files
from tests.support.oracle import expect_all
from tests.support.processes import wait_until
from tests.support.received import received_bytes
from tests.support.traffic import Traffic

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(reason_not_to_run()), reason=reason_not_to_run()),
]
ROOT = Path(__file__).parents[2]
OWNER = 10001  # of the data of broker and receiver
Services = Mapping[str, Sequence[dict[str, Any]]]
"""The containers to run for each program, one after the other."""


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


def services_of_compose(folder: Path) -> Services:
    given = {f"LOGSHIP_{name.upper()}": folder / name for name in ("store", "received", "logs")}
    (folder / "nodename").write_text(f"{NODE}\n")
    given["LOGSHIP_HOST_FILE"] = folder / "nodename"
    return {name: [service] for name, service in read_services(given).items()}


def services_of_kubernetes(folder: Path) -> Services:
    """Return the containers of each pod, with the secrets that the page makes."""
    (folder / "safe").mkdir()
    make_secrets(folder / "safe")
    found = {}
    for pod in PODS:
        secrets = folder / pod.program
        secrets.mkdir()
        for file in secret_files(pod.secret, folder / "safe"):
            os.chown(shutil.copy(file, secrets), 0, OWNER)
            (secrets / file.name).chmod(0o440)
        volumes = {name: folder / name for name in ("store", "received", "logs")}
        found[pod.program.removeprefix("log")] = pod.as_services(volumes | {"secrets": secrets})
    return found


@pytest.mark.parametrize(
    ("services_of", "log", "received", "command"),
    [
        (services_of_compose, "app.log", f"{NODE}.log", "logbroker status"),
        (
            services_of_kubernetes,
            "pods/shop_web_1/app/0.log",
            f"{NODE}/shop/web/app.log",
            re.findall(r"exec logbroker-0 -- (.*)", PAGE)[0],
        ),
    ],
    ids=["compose", "kubernetes"],
)
def test_containers_that_are_killed_and_replaced_pass_on_each_line_once(
    engine: Engine,
    tmp_path: Path,
    services_of: Callable[[Path], Services],
    log: str,
    received: str,
    command: str,
) -> None:
    for name in ("store", "received", "logs"):
        _make_volume(tmp_path / name)
    services = services_of(tmp_path)
    source, output = tmp_path / "logs" / log, tmp_path / "received" / received
    _link_container(tmp_path / "logs", log)

    def start(name: str) -> None:
        *before, program = services[name]
        for one in before:
            engine.finish(one)
        engine.start(name, program)

    try:
        with Traffic([source], 400) as traffic:
            for name in ("broker", "receiver", "shipper"):
                start(name)
            _expect_flow(traffic, output)
            for name in ("shipper", "broker", "shipper", "receiver"):
                engine.kill(name)
                if name == "shipper":
                    traffic.rotate(source)
                start(name)
                _expect_flow(traffic, output)
        assert "hosts   1\n" in engine.call("podman", "exec", "broker", *command.split())
        expect_all(output.parent, {output.stem: [traffic.written[source]]})
    finally:
        print(engine.logs())  # noqa: T201 - shown if the test fails
    shipper = engine.inspect("shipper")
    assert shipper["HostConfig"]["ReadonlyRootfs"]
    assert not any(mount["RW"] for mount in shipper["Mounts"])
    codes = {name: engine.stop(name) for name in ("shipper", "receiver", "broker")}
    assert codes == {"shipper": 0, "receiver": 0, "broker": 0}


def _make_volume(path: Path) -> None:
    """Make a folder as Kubernetes makes a volume with `fsGroup`, on a disk of its own."""
    path.mkdir()
    os.chown(path, 0, OWNER)
    path.chmod(0o2775)
    (path / "lost+found").mkdir(0o700)


def _link_container(logs: Path, log: str) -> None:
    """Link to the file of a pod's container as the kubelet does."""
    (logs / "containers").mkdir()
    link = logs / "containers" / f"web_shop_app-{'0' * 64}.log"
    link.symlink_to(f"/var/log/{log}")


def _expect_flow(traffic: Traffic, output: Path) -> None:
    """Wait until all that was written up to now is received."""
    written = sum(map(len, traffic.written.values()))

    def is_received() -> bool:
        with suppress(FileNotFoundError):
            return received_bytes(output.parent, output.stem) >= written
        return False

    wait_until("lines flow", is_received, 120)
