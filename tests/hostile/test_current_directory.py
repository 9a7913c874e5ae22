"""Nothing in the directory in which a program is started runs as a part of the program."""

import ast
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import Processes, installed, wait_until
from tests.support.received import read_received
from tests.support.suite import Suite

ROOT = Path(__file__).parents[2]
PRODUCT = ("nats_logship", "broker", "shipper", "receiver", "pyspark_jetstream")
LAUNCHER = ROOT / "nats_logship" / "app" / "python.py"
PACKAGES = (*PRODUCT, "pyspark", "py4j", "nats", "zstandard", "nacl", "pydantic", "aiohttp")
MODULES = (
    *("re", "json", "os", "struct", "signal", "socket", "asyncio", "logging", "importlib", "runpy"),
    *("daemon", "worker", "worker_daemon", "sitecustomize", "usercustomize"),
)
LEAVE_A_TRACE = """
import _io
_io.open({trace!r}, "a").write(__name__ + "\\n")
raise ImportError("not what was asked for")
"""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """Return a directory of packages and modules that leave a trace beside it when they run."""
    folder = tmp_path / "trap"
    code = LEAVE_A_TRACE.format(trace=str(tmp_path / "trace"))
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(code)
    for name in MODULES:
        (folder / f"{name}.py").write_text(code)
    return folder


class Trapped(Processes):
    trap: Path

    def start(self, name, arguments, environment=None, folder=None):  # type: ignore[no-untyped-def]
        return super().start(name, arguments, environment, folder or self.trap)


@pytest.fixture
def suite(trap: Path, tmp_path: Path) -> Iterator[Suite]:
    (tmp_path / "programs").mkdir()
    with Trapped(tmp_path / "programs") as programs:
        programs.trap = trap
        yield Suite(tmp_path, programs, 1)


def run_in(folder: Path, *command: str | Path) -> str:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=True
    ).stdout


def test_a_python_that_is_started_as_usual_runs_what_the_trap_holds(trap: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_in(trap, sys.executable, "-m", "receiver.spark.worker_daemon")

    assert (trap.parent / "trace").exists()


@pytest.mark.journey
@pytest.mark.nats
@pytest.mark.spark
def test_no_program_runs_what_is_in_the_directory_in_which_it_is_started(
    suite: Suite, trap: Path
) -> None:
    log = suite.folder / "app.log"
    log.write_bytes(b"one\ntwo\nthree\n")
    suite.start_broker()
    assert suite.start_shipper("web01", [log], "--once").wait(60) == 0
    assert suite.start_receiver([0], "--once").wait(120) == 0
    server = ("--server", suite.url)

    found = run_in(trap, installed("logbroker"), "tail", "--match", "^t", "--no-follow", *server)

    port = free_port()
    options = ["console", "--listen", f"127.0.0.1:{port}", *server]
    console = suite.start_program("logbroker", "console", options)
    wait_until("the console listens", lambda: "open http" in console.read_log(), 30, [console])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/lines?match=^t", timeout=60) as page:
        missing = {b'"two"', b'"three"'}
        while missing:  # the newest lines come first
            line = page.readline()
            missing = {one for one in missing if one not in line}
    assert found == "web01: two\nweb01: three\n"
    assert read_received(suite.output, "web01") == log.read_bytes()
    assert not (trap.parent / "trace").exists(), (trap.parent / "trace").read_text()


def test_only_the_launcher_knows_the_path_of_python() -> None:
    others = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in PRODUCT
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != LAUNCHER
        for node in ast.walk(ast.parse(path.read_text()))
        if names_python(node)
    ]

    assert others == []
    assert any(map(names_python, ast.walk(ast.parse(LAUNCHER.read_text()))))


def names_python(node: ast.AST) -> bool:
    """Whether a piece of code asks for the path of Python, or imports what starts one by itself."""
    match node:
        case ast.Attribute(attr="executable" | "_base_executable", value=ast.Name(id="sys")):
            return True
        case ast.ImportFrom(module="sys", names=names):
            return any(one.name in ("executable", "_base_executable", "*") for one in names)
        case ast.ImportFrom(module=str(module)) | ast.alias(name=module):
            return module.split(".")[0] in ("multiprocessing", "runpy")
    return False


@pytest.mark.parametrize("folder", ["ansible", "systemd"])
def test_what_is_run_on_hosts_starts_no_python_in_their_current_directory(folder: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {command}"
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        for command in python_commands(path.read_text())
    }

    assert {one for one in found if not one.endswith((" -I", " -P"))} == set()
    assert len(found) >= 3 or folder == "systemd"


def python_commands(text: str) -> Iterator[str]:
    """Yield each start of a Python up to its first option, out of a text, a list or Jinja."""
    for what in (r"^\s*- ", r"[\s'\",\[\]]|\}\}"):
        text = re.sub(what, " ", text, flags=re.MULTILINE)
    for found in re.finditer(r"\S*python[0-9.]*\s+-\w+", text):
        yield re.sub(r"\s+", " ", found[0])


def test_a_start_without_isolation_is_found_in_every_form() -> None:
    forms = (
        "/opt/logship/bin/python -c 'x'",
        "argv: [runuser, -u, nobody, --, \"{{ home }}/bin/python\", -c, '']",
        "argv:\n  - \"{{ python }}\"\n  - -c\n  - 'import x'",
        "{{ readable + [home ~ '/bin/python3.11', '-m', 'pip'] }}",
        "python3  -m venv x",
    )

    assert all(len([*python_commands(form)]) == 1 for form in forms)
    assert not any(one.endswith((" -I", " -P")) for form in forms for one in python_commands(form))
