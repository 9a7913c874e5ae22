"""Which container wrote a source file, by the paths of the kubelet and of Docker.

Pure functions of paths. The last names of a path decide, as the folders before them may be mounted
or moved. Only names that Kubernetes allows count: lower case, digits, `-` and `.`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

_NAME = "[a-z0-9][a-z0-9.-]{0,252}"
_KUBERNETES = re.compile(
    # a link in /var/log/containers; its name is cut at 255 bytes, so the id may be shorter
    rf"containers/(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})"
    r"-[0-9a-f]{1,64}\.log(?:\..*)?"
)
_PODS = re.compile(
    rf"pods/(?P<namespace>{_NAME})_(?P<pod>{_NAME})_[a-z0-9-]+/(?P<container>{_NAME})/[0-9]+\.log"
    r"(?:\..*)?"
)
_DOCKER = re.compile(r"containers/(?P<container>[0-9a-f]{64})/(?P=container)-json\.log(?:\..*)?")
_LAYOUTS = ((_KUBERNETES, 2), (_PODS, 4), (_DOCKER, 3))
"""Each with the number of names at the end of a path that it describes."""


@lru_cache(maxsize=16_384)
def name_container(path: str) -> Mapping[str, str]:
    """Return `namespace`, `pod` and `container` of a source file; empty for any other file.

    A path of Docker has only `container`, which is the container's id.
    """
    names = path.split("/")
    for layout, count in _LAYOUTS:
        if len(names) >= count and (found := layout.fullmatch("/".join(names[-count:]))):
            return found.groupdict()
    return {}


def make_path(names: Mapping[str, str]) -> str:
    """Return a path that has these names of a container; others are `0`."""
    pod, namespace, container = (names.get(one, "0") for one in ("pod", "namespace", "container"))
    return f"containers/{pod}_{namespace}_{container}-0.log"
