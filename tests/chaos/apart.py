"""A run has namespaces of its own: processes, mounts, networks. Whatever happens, the kernel leaves nothing of them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["enter"]

_MARK = "LOGSHIP_CHAOS_APART"
_APART = ("--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
_AS_ROOT = ("--user", "--map-root-user")
_TOOLS = ("unshare", "nsenter", "mount", "ip")
_INIT = '"$@"; exit $?'  # the first process of a namespace inherits orphans, and a shell reaps them


def enter(module: str, arguments: Sequence[str]) -> None:
    """Go on as `python -m module arguments` within namespaces; returns when we are within them.

    Raises `PermissionError` where this machine does not let us have any, `FileNotFoundError` where it lacks the tools.
    """
    if _MARK in os.environ:
        return
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        raise FileNotFoundError(f"{', '.join(missing)}: not on PATH (util-linux and iproute2)")
    options = _APART if os.geteuid() == 0 else (*_AS_ROOT, *_APART)
    if subprocess.run(["unshare", *options, "true"], check=False, capture_output=True).returncode:
        raise PermissionError(
            "namespaces of its own take root, or a kernel that lets users have them"
        )
    os.environ[_MARK] = "1"
    words = ("sh", "-c", _INIT, "sh", sys.executable, "-m", module, *arguments)
    os.execvp("unshare", ["unshare", *options, *words])
