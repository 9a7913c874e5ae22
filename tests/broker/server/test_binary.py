import sys
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError, Exit
from broker.server.binary import examine, find


def program(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "nats-server"
    path.write_text("#!/bin/sh\n", "utf-8")
    path.chmod(0o755)
    return path


def test_the_program_of_the_package_stands_beside_python() -> None:
    assert find(None) == Path(sys.executable).with_name("nats-server")


def test_the_one_that_is_named_is_taken(tmp_path: Path) -> None:
    assert find(program(tmp_path)) == tmp_path / "nats-server"


def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    path = program(tmp_path)
    path.chmod(0o644)

    with pytest.raises(ConfigurationError, match="not executable"):
        find(path)


def test_without_the_package_the_one_on_path_is_taken_and_without_any_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    with pytest.raises(ConfigurationError, match=r"pip install 'logship\[broker\]'") as raised:
        find(None)
    assert raised.value.code is Exit.CONFIGURATION

    on_path = program(tmp_path / "bin")
    assert find(None) == on_path


def named(folder: Path, says: str) -> Path:
    path = program(folder)
    path.write_text(f"#!/bin/sh\necho '{says}'\n", "utf-8")
    return path


def test_the_version_of_the_program_is_known(tmp_path: Path) -> None:
    assert examine(None).version == "2.15.1"
    assert examine(named(tmp_path, "nats-server: v2.16.0-dev")).version == "2.16.0-dev"


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("nats-server: v2.14.9", "is version 2.14.9, and 2.15.0 or newer is needed"),
        ("hello", "prints no version"),
    ],
)
def test_a_program_that_is_too_old_or_something_else_is_refused(
    tmp_path: Path, says: str, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        examine(named(tmp_path, says))
