"""Which container wrote a file, by the paths that kubelet, CRI and Docker give to logs."""

import re
from functools import lru_cache
from typing import NamedTuple


class Container(NamedTuple):
    """The container of a file; None for what its path does not say."""

    container: str | None = None
    pod: str | None = None
    namespace: str | None = None


_NONE = Container()
_FORMS = (
    # kubelet: /var/log/pods/<namespace>_<pod>_<uid>/<container>/0.log
    re.compile(r".*/pods/(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_[^/]+/(?P<container>[^/]+)/[^/]+"),
    # its links: /var/log/containers/<pod>_<namespace>_<container>-<id>.log
    re.compile(
        r".*/containers/(?P<pod>[^/_]+)_(?P<namespace>[^/_]+)_(?P<container>[^/]+)-[0-9a-f]{64}\.log"
    ),
    # Docker: /var/lib/docker/containers/<id>/<id>-json.log
    re.compile(r".*/containers/(?P<container>[0-9a-f]{64})/[^/]+"),
)


@lru_cache(16_384)
def find_container(path: str) -> Container:
    """Return the container that wrote the file with this path."""
    for form in _FORMS:
        if found := form.fullmatch(path):
            return Container(**found.groupdict())
    return _NONE
