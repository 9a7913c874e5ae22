"""The pods of the manifests, and the secrets that the page makes for them."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.deploy.engine import DEPLOY
from tests.deploy.manifests import FOLDER, objects_in
from tests.docs.commands import blocks

PAGE = (DEPLOY.parent / "docs/kubernetes.md").read_text("utf-8")
NODE = "node-1"
_FIELDS = {"spec.nodeName": NODE, "metadata.name": "logbroker-0"}
_NAMED = re.compile(r"\$\((\w+)\)")


class Pod(NamedTuple):
    """The pod of a program."""

    program: str
    spec: dict[str, Any]

    @property
    def container(self) -> dict[str, Any]:
        return next(one for one in self.spec["containers"] if one["name"] == self.program)

    @property
    def variables(self) -> dict[str, str]:
        """The program's settings, as the kubelet fills them in."""
        return _fill(self.container)

    @property
    def secret(self) -> str:
        (secret,) = (one["secret"] for one in self.spec["volumes"] if one["name"] == "secrets")
        return str(secret["secretName"])

    def as_services(self, volumes: Mapping[str, Path]) -> list[dict[str, Any]]:
        """Return the containers as services of compose, the program's last.

        `volumes` are folders of this machine; others become a tmpfs.
        """
        who = self.spec["securityContext"]
        common = {
            "user": f"{who['runAsUser']}:{who['runAsGroup']}",
            "group_add": [who["fsGroup"]] if "fsGroup" in who else [],
        }
        containers = (*self.spec.get("initContainers", ()), self.container)
        return [common | _as_service(one, volumes) for one in containers]


def _as_service(container: dict[str, Any], volumes: Mapping[str, Path]) -> dict[str, Any]:
    rights, mounts = container["securityContext"], container["volumeMounts"]
    return {
        "image": f"{container['image']}:{TAGS[container['image']]}",
        "command": container.get("command", []),
        "environment": _fill(container),
        "read_only": rights["readOnlyRootFilesystem"],
        "cap_drop": rights["capabilities"]["drop"],
        "security_opt": [f"no-new-privileges:{not rights['allowPrivilegeEscalation']}".lower()],
        "volumes": [
            f"{volumes[one['name']]}:{one['mountPath']}:{'ro' if one.get('readOnly') else 'rw'}"
            for one in mounts
            if one["name"] in volumes
        ],
        "tmpfs": [one["mountPath"] for one in mounts if one["name"] not in volumes],
    }


def _fill(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables; `$(NAME)` is one of those before it, as the kubelet has it."""
    values: dict[str, str] = {}
    for one in container.get("env", ()):
        field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        text = _FIELDS[field] if field else one["value"]
        values[one["name"]] = _NAMED.sub(lambda found: values.get(found[1], found[0]), text)
    return values


def pods_of(objects: list[dict[str, Any]]) -> list[Pod]:
    specs = [one for one in objects if one["kind"] in ("StatefulSet", "DaemonSet")]
    return [Pod(one["metadata"]["name"], one["spec"]["template"]["spec"]) for one in specs]


BASE = [one for path in sorted((FOLDER / "base").glob("*er.yaml")) for one in objects_in(path)]
PODS = pods_of(BASE)
(_IMAGES,) = objects_in(FOLDER / "base/kustomization.yaml")
TAGS = {one["name"]: one["newTag"] for one in _IMAGES["images"]}


def make_secrets(folder: Path) -> None:
    """Run the commands of the page that make secrets, for one node."""
    (script,) = blocks(PAGE, "sh")
    setting = {"NODES": NODE, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    subprocess.run(["bash", "-ec", script], cwd=folder, env=setting, check=True)


def secret_files(name: str, folder: Path) -> Iterator[Path]:
    """Yield the files of a Secret that the page makes, all below `folder`."""
    (command,) = re.findall(rf"secret generic {name} (.*)", PAGE.replace("\\\n", " "))
    for path in (folder / one for one in re.findall(r"--from-file=(\S+)", command)):
        found = list(path.iterdir()) if path.is_dir() else [path]
        yield from (one for one in found if one.is_file())
