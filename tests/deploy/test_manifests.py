"""Manifests and `compose.yaml` give the programs settings, ports and files that they have."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from broker.auth.certificates import Pki
from broker.settings import BrokerSettings
from nats_logship.app.configuration import load
from receiver.settings import ReceiverSettings
from shipper.settings import ShipperSettings
from tests.deploy.engine import DEPLOY, read_services
from tests.deploy.manifests import (
    FOLDER,
    find_renderer,
    overlays,
    render,
    render_for_docker,
)
from tests.deploy.pods import BASE, NODE, PODS, TAGS, Pod, make_secrets, pods_of, secret_files

ROOT = DEPLOY.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MODELS = {
    "logbroker": BrokerSettings,
    "logshipper": ShipperSettings,
    "logreceiver": ReceiverSettings,
}
rendered = pytest.mark.skipif(not find_renderer(), reason="needs kubectl or kustomize")


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
    # with SELinux only this type may read folders of the node
    types = pod.spec["securityContext"].get("seLinuxOptions")
    assert types == ({"type": "spc_t"} if hosts else None)


@each
def test_a_pod_runs_only_where_its_image_does(pod: Pod) -> None:
    assert pod.spec["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }


def test_a_broker_may_read_back_a_large_store_and_wait_for_its_cluster() -> None:
    (broker,) = (pod.container for pod in PODS if pod.program == "logbroker")
    seconds = {
        name: broker[f"{name}Probe"]["periodSeconds"] * broker[f"{name}Probe"]["failureThreshold"]
        for name in ("startup", "liveness")
    }
    (service,) = (
        one["spec"]
        for one in BASE
        if one["kind"] == "Service" and one["metadata"]["name"] == "logbroker"
    )

    assert seconds["startup"] >= 24 * 3600
    assert seconds["liveness"] >= 600
    # a full one must be reached by those who free space
    assert service["publishNotReadyAddresses"]


def test_credentials_that_the_volume_has_are_not_written_again(tmp_path: Path) -> None:
    (command,) = (one["command"] for pod in PODS for one in pod.spec.get("initContainers", ()))
    kept = tmp_path / "store/credentials.json"
    kept.parent.mkdir()
    paths = {"/etc/logship": str(tmp_path), "/var/lib/logbroker": str(kept.parent)}
    given = [re.sub("|".join(paths), lambda found: paths[found[0]], one) for one in command]
    is_written = []
    for text in ("old", "new", "new"):
        (tmp_path / kept.name).write_text(text)
        subprocess.run(given, check=True)
        is_written.append(kept.stat().st_mtime > 0)
        assert kept.read_text() == text
        os.utime(kept, (0, 0))

    assert is_written == [True, True, False]


def test_images_have_the_users_and_the_version_of_the_manifests() -> None:
    containerfile = (DEPLOY / "Containerfile").read_text("utf-8")
    tags = {f"{name}:{tag}" for name, tag in TAGS.items()}
    users = {pod.spec["securityContext"].get("fsGroup") for pod in PODS}

    assert tags == {service["image"] for service in read_services({}).values()}
    assert tags == {f"ghcr.io/nats-logship/{name}:{PROJECT['version']}" for name in MODELS}
    assert users == {None, int(re.findall(r"--uid (\d+)", containerfile)[0])}
    assert set(re.findall(r"^USER (\d+)", containerfile, re.M)) == {"65534", "10001"}
    # by it ghcr.io knows the repository of an image
    label = f"LABEL org.opencontainers.image.source={PROJECT['urls']['Repository']}"
    assert label in containerfile.splitlines()


@pytest.mark.parametrize("service", read_services({}))
def test_a_service_of_compose_gives_settings_that_its_program_has(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = dict(read_services({})[service]["environment"])
    if "LOGSHIPPER_HOST" in variables:
        (tmp_path / "nodename").write_text(NODE)
        variables["LOGSHIPPER_HOST"] = f"@{tmp_path}/nodename"

    takes(f"log{service}", variables, monkeypatch)


def test_the_page_makes_each_secret_that_a_pod_reads(tmp_path: Path) -> None:
    make_secrets(tmp_path)

    for pod in PODS:
        keys = {file.name for file in secret_files(pod.secret, tmp_path)}
        read = {Path(text).name for text in pod.variables.values() if "/etc/logship/" in text}
        assert read <= keys
        assert pod.program != "logshipper" or keys == {f"host-{NODE}.toml"}
    peers = {f"logbroker-{number}.logbroker-peers" for number in range(3)}
    assert {"logbroker", *peers} <= set(Pki(tmp_path / "store").read_names())


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
    given = {
        pod.program: takes(pod.program, pod.variables, monkeypatch) for pod in pods_of(objects)
    }
    settings = given.pop("logbroker")

    spec = broker["spec"]
    names = [f"logbroker-{number}.{spec['serviceName']}" for number in range(spec["replicas"])]
    assert spec["minReadySeconds"] >= 30  # an update leaves replicas time to catch up
    assert settings.server_name == "logbroker-0"
    assert [route.host for route in settings.route] == names
    port = settings.listen.port
    assert settings.nats["client_advertise"] == f"{names[0]}:{port}"
    for client in given.values():
        assert client.server == tuple(f"tls://{name}:{port}" for name in names)
