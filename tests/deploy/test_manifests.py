"""Manifests and `compose.yaml` give the programs settings, ports and files that they have."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.settings import BrokerSettings
from nats_logship.app.configuration import load
from receiver.settings import ReceiverSettings
from shipper.settings import ShipperSettings
from tests.deploy.engine import DEPLOY, read_services
from tests.deploy.manifests import (
    FOLDER,
    find_renderer,
    objects_in,
    overlays,
    render,
    render_for_docker,
)
from tests.docs.commands import blocks
from tests.support.commands import run_command
from tests.support.ports import free_port
from tests.support.processes import Processes, installed, wait_until

ROOT = DEPLOY.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
PAGE = (ROOT / "docs/kubernetes.md").read_text("utf-8")
MODELS = {
    "logbroker": BrokerSettings,
    "logshipper": ShipperSettings,
    "logreceiver": ReceiverSettings,
}
NODE = "node-1"
rendered = pytest.mark.skipif(not find_renderer(), reason="needs kubectl or kustomize")


class Pod(NamedTuple):
    """The pod of a program, and its container's variables."""

    program: str
    spec: dict[str, Any]

    @property
    def container(self) -> dict[str, Any]:
        return next(one for one in self.spec["containers"] if one["name"] == self.program)

    @property
    def variables(self) -> dict[str, str]:
        """The variables with a prefix of the program, as the kubelet fills them in."""
        values = {one["name"]: one["value"] for one in self.container["env"] if "value" in one}
        names = {"$(NODE_NAME)": NODE, "$(POD_NAME)": "logbroker-0"}
        for name, value in names.items():
            values = {key: text.replace(name, value) for key, text in values.items()}
        return values

    @property
    def secret(self) -> str:
        (secret,) = (one["secret"] for one in self.spec["volumes"] if one["name"] == "secrets")
        return str(secret["secretName"])


def pods_of(objects: list[dict[str, Any]]) -> list[Pod]:
    specs = [one for one in objects if one["kind"] in ("StatefulSet", "DaemonSet")]
    return [Pod(one["metadata"]["name"], one["spec"]["template"]["spec"]) for one in specs]


BASE = [one for path in sorted((FOLDER / "base").glob("*er.yaml")) for one in objects_in(path)]
PODS = pods_of(BASE)
each = pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod.program)


def takes(program: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load(MODELS[program], {}, None)


@each
def test_a_pod_gives_settings_and_ports_that_its_program_has(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = takes(pod.program, pod.variables, monkeypatch)

    ports = {one["name"]: one["containerPort"] for one in pod.container["ports"]}
    listen = {"nats": "listen", "metrics": "metrics"} if "nats" in ports else {"metrics": "listen"}
    assert {name: getattr(settings, field).port for name, field in listen.items()} == ports
    probes = [probe["httpGet"] for name, probe in pod.container.items() if name.endswith("Probe")]
    assert {(probe["path"], probe["port"]) for probe in probes} == {
        ("/healthz", "metrics"),
        ("/metrics", "metrics"),
    }


@each
def test_a_pod_can_write_nothing_but_its_volumes_and_has_no_rights(pod: Pod) -> None:
    for container in (*pod.spec.get("initContainers", ()), *pod.spec["containers"]):
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"]
        assert confined["capabilities"] == {"drop": ["ALL"]}
        assert not confined["allowPrivilegeEscalation"]
    hosts = [one["name"] for one in pod.spec["volumes"] if "hostPath" in one]
    mounts = [one for one in pod.container["volumeMounts"] if one["name"] in (*hosts, "secrets")]
    assert mounts
    assert all(mount["readOnly"] for mount in mounts)


def test_images_have_the_users_and_the_version_of_the_manifests() -> None:
    containerfile = (DEPLOY / "Containerfile").read_text("utf-8")
    (base,) = objects_in(FOLDER / "base/kustomization.yaml")
    tags = {f"{one['name']}:{one['newTag']}" for one in base["images"]}
    users = {pod.spec["securityContext"].get("fsGroup") for pod in PODS}

    assert tags == {service["image"] for service in read_services({}).values()}
    assert tags == {f"ghcr.io/nats-logship/{name}:{VERSION}" for name in MODELS}
    assert users == {None, int(re.findall(r"--uid (\d+)", containerfile)[0])}
    assert set(re.findall(r"^USER (\d+)", containerfile, re.M)) == {"65534", "10001"}


@pytest.mark.parametrize("service", read_services({}))
def test_a_service_of_compose_gives_settings_that_its_program_has(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = dict(read_services({})[service]["environment"])
    if "LOGSHIPPER_HOST" in variables:
        (tmp_path / "nodename").write_text(NODE)
        variables["LOGSHIPPER_HOST"] = f"@{tmp_path}/nodename"

    takes(f"log{service}", variables, monkeypatch)


def test_the_page_makes_each_secret_that_a_pod_reads_and_a_broker_takes_them(
    tmp_path: Path, processes: Processes
) -> None:
    (script,) = blocks(PAGE, "sh")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    setting = {"NODES": NODE, "PATH": path}
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=setting, check=True)
    for pod in PODS:
        keys = {file.name for file in secret_files(pod.secret, tmp_path)}
        read = {Path(text).name for text in pod.variables.values() if "/etc/logship/" in text}
        assert read <= keys
        assert pod.program != "logshipper" or keys == {f"host-{NODE}.toml"}

    mounted, store = tmp_path / "mounted", tmp_path / "volume"
    mounted.mkdir()
    store.mkdir()
    for file in secret_files("logbroker", tmp_path):
        shutil.copy(file, mounted)
    (broker,) = (pod for pod in PODS if pod.program == "logbroker")
    (copying,) = (one["command"] for one in broker.spec["initContainers"])
    variables = {"/etc/logship": str(mounted), "/var/lib/logbroker": str(store)}
    address = f"127.0.0.1:{free_port()}"
    subprocess.run([replaced(text, variables) for text in copying], check=True)
    texts = {name: replaced(text, variables) for name, text in broker.variables.items()}
    texts |= {"LOGBROKER_LISTEN": address, "LOGBROKER_METRICS": "127.0.0.1:0"}
    texts |= {"LOGBROKER_STORE_DIR": str(store), "LOGBROKER_HTTP": "127.0.0.1:0"}
    started = processes.start("logbroker", [installed("logbroker"), "run"], texts)
    wait_until("the broker is ready", lambda: "ready:" in started.read_log(), 60, [started])
    admin = ("--config", str(mounted / "admin.toml"), "--server", f"tls://{address}")
    assert "logs" in run_command("logbroker", "status", *admin).lower()


def replaced(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def secret_files(name: str, folder: Path) -> Iterator[Path]:
    """Yield the files of a Secret that the page makes, all below `folder`."""
    (command,) = re.findall(rf"secret generic {name} (.*)", PAGE.replace("\\\n", " "))
    for path in (folder / one for one in re.findall(r"--from-file=(\S+)", command)):
        found = list(path.iterdir()) if path.is_dir() else [path]
        yield from (one for one in found if one.is_file())


@rendered
@pytest.mark.parametrize("overlay", overlays(), ids=lambda path: path.name)
def test_an_overlay_names_objects_and_ports_that_are_there(
    overlay: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = render(overlay)
    pods = {pod.program: pod for pod in pods_of(objects)}
    services = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Service"}

    assert pods.keys() == MODELS.keys()
    for pod in pods.values():
        takes(pod.program, pod.variables, monkeypatch)
    for service in services.values():
        program = service["spec"]["selector"]["app.kubernetes.io/name"]
        ports = pods[program].container["ports"]
        known = {value for port in ports for value in (port["name"], port["containerPort"])}
        targets = {one["targetPort"] for one in service["spec"]["ports"]}
        assert targets <= known | ({6222} if overlay.name == "single" else set())
    docker = {pod.program: pod for pod in pods_of(render_for_docker(overlay))}["logshipper"]
    mounts = {one["mountPath"]: one["name"] for one in docker.container["volumeMounts"]}
    on_node = [one for one in docker.spec["volumes"] if "hostPath" in one]
    folders = {one["name"]: one["hostPath"]["path"] for one in on_node}
    assert {path: folders.get(name) for path, name in mounts.items()} == {
        "/var/log": "/var/log",
        "/var/lib/docker/containers": "/var/lib/docker/containers",
        "/etc/logship": None,
    }


@rendered
def test_a_cluster_names_each_of_its_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = render(FOLDER / "overlays/cluster")
    (broker,) = (
        one
        for one in objects
        if one["metadata"]["name"] == "logbroker" and one["kind"] == "StatefulSet"
    )
    (pod,) = pods_of([broker])
    settings = takes("logbroker", pod.variables, monkeypatch)

    spec = broker["spec"]
    names = [f"logbroker-{number}.{spec['serviceName']}" for number in range(spec["replicas"])]
    assert [route.host for route in settings.route] == names
    assert settings.nats["client_advertise"] == f"{names[0]}:{settings.listen.port}"
