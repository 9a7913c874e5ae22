"""What a peer is: how both its ends are configured, where it is found, what it cannot carry.

A peer is a pair of programs: a client on each host, which follows its logs, and a server at the
receivers' machine, which writes `<host>.log`, the raw lines and nothing else. It is set up as it is
fast: with acknowledgements where there are any, tries without end and flow control, and without
what costs a disk's time per line.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nats_logship.app.address import Address

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+")


@dataclass(frozen=True, slots=True)
class Client:
    """The client's files: `*.log` in `logs`, its state, and the address it sends lines to."""

    host: str
    logs: Path
    state: Path
    server: Address


@dataclass(frozen=True, slots=True)
class Server:
    """Where the server listens, writes `<host>.log`, and keeps what it must not forget."""

    output: Path
    state: Path
    listen: Address


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer as it is on this machine: from PATH, or from a folder of unpacked packages."""

    program: Path
    modules: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer. `arguments` makes a command line from a configuration file and a state folder.

    `packages` are Debian's, none where Debian has none. `modules` is where they have modules, with
    `*` for what differs between machines, and `module_option` is the option for their folder.
    `version` is how it is asked for its version.
    """

    name: str
    program: str
    client: Callable[[Client], str]
    server: Callable[[Server], str]
    arguments: Callable[[Path, Path], list[str | Path]]
    version: str
    packages: tuple[str, ...] = ()
    modules: str = ""
    module_option: str = ""

    def missing(self, unpacked: Path) -> str:
        """Say why it cannot be run here, by asking it for its version; empty where it can."""
        installed = self.find(unpacked)
        if installed is None:
            return self._nowhere
        try:
            self.version_of(installed)
        except (OSError, ValueError) as error:
            return f"it does not run: {error}"
        return ""

    @property
    def _nowhere(self) -> str:
        packages = f" ({' '.join(self.packages)})" if self.packages else ""
        return f"{self.program} is not on PATH, and no packages{packages} are unpacked"

    def find(self, unpacked: Path) -> Installed | None:
        """Return its path, None if it is missing; packages are in a folder of its name."""
        root = unpacked / self.name
        for path in (root / "usr/sbin" / self.program, root / "usr/bin" / self.program):
            if path.is_file():
                return self._unpacked(root, path)
        found = shutil.which(self.program, path=f"{os.environ['PATH']}:/usr/sbin")
        return Installed(Path(found)) if found else None

    def command(self, installed: Installed, configuration: Path, state: Path) -> list[str | Path]:
        """Return the command line that runs it in the foreground."""
        modules = [f"{self.module_option}{installed.modules}"] if installed.modules else []
        return [installed.program, *modules, *self.arguments(configuration, state)]

    def version_of(self, installed: Installed) -> str:
        """Return its version; raises OSError or ValueError if that cannot be found out."""
        asked = subprocess.run(
            [installed.program, self.version],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **installed.environment},
        )
        if (found := _VERSION.search(asked.stdout)) is None:
            said = (asked.stdout + asked.stderr).strip().splitlines() or [
                f"exit code {asked.returncode}"
            ]
            raise ValueError(f"{installed.program} {self.version}: {said[-1]}")
        return found[0]

    def _unpacked(self, root: Path, program: Path) -> Installed:
        libraries = sorted({path.parent for path in root.rglob("*.so*")})
        modules = next(root.glob(self.modules), None) if self.modules else None
        paths = ":".join(str(path) for path in libraries if path != modules)
        return Installed(program, modules, {"LD_LIBRARY_PATH": paths} if paths else {})
