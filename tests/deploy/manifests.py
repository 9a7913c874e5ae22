"""`python -m tests.deploy.manifests` checks `deploy/kubernetes` against Kubernetes' own schemas.

Overlays are rendered by kubectl or kustomize. Where neither is installed only the objects of the
base are checked.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
VERSIONS = ("1.30", "1.37")
_DOCKER = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{overlay}]
components: [{component}]
"""


def overlays() -> list[Path]:
    return sorted((FOLDER / "overlays").iterdir())


def objects_in(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    return [one for one in yaml.safe_load_all(path.read_text("utf-8")) if one]


def find_renderer() -> list[str]:
    """Return the command that renders a folder; empty if none is installed."""
    commands = (["kubectl", "kustomize"], ["kustomize", "build"])
    return next((command for command in commands if shutil.which(command[0])), [])


def render(folder: Path) -> list[dict[str, Any]]:
    """Return the objects of an overlay."""
    done = subprocess.run([*find_renderer(), folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    return list(yaml.safe_load_all(done.stdout))


def render_for_docker(overlay: Path) -> list[dict[str, Any]]:
    """Return the objects of an overlay with the component for Docker."""
    with tempfile.TemporaryDirectory() as temporary:
        named = {"overlay": overlay, "component": FOLDER / "components/docker"}
        paths = {name: os.path.relpath(path, temporary) for name, path in named.items()}
        Path(temporary, "kustomization.yaml").write_text(_DOCKER.format(**paths))
        return render(Path(temporary))


def _find_faults(objects: list[dict[str, Any]]) -> Iterator[str]:
    import kubernetes_validate  # one of the tools of `make lint`

    for one in objects:
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(one, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(map(str, error.path))
                name = f"{one['kind']} {one['metadata']['name']}"
                yield f"{name} (Kubernetes {version}): {where}: {error.message}"


def main() -> None:
    """Print the faults, and end with 1 if there are any."""
    if find_renderer():
        sets = [made for path in overlays() for made in (render(path), render_for_docker(path))]
    else:
        print("neither kubectl nor kustomize is installed: overlays are not checked")  # noqa: T201
        bases = [path for path in (FOLDER / "base").iterdir() if path.stem != "kustomization"]
        sets = [objects_in(path) for path in bases]
    faults = [fault for objects in sets for fault in _find_faults(objects)]
    print("\n".join(dict.fromkeys(faults)) or "manifests: no faults")  # noqa: T201
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
