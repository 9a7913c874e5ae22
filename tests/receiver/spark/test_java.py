"""Which Java is used, and what is reported for an unsupported one."""

from pathlib import Path

import pytest

from nats_logship.app.exits import ConfigurationError, Exit
from receiver.spark.java import SUPPORTED, find_java


def make_java(home: Path, version: str) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.touch()
    (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n')
    return launcher


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2", "25+36", "17.0.9-internal"])
def test_supported_releases_are_taken_from_java_home(tmp_path: Path, version: str) -> None:
    launcher = make_java(tmp_path, version)

    java = find_java({"JAVA_HOME": str(tmp_path)})

    assert (java.executable, java.origin) == (launcher, "JAVA_HOME")
    assert java.release in SUPPORTED


@pytest.mark.parametrize("version", ["11.0.20", "1.8.0_392", "22.0.1", "26", "nonsense", "", "21"])
def test_an_unsupported_java_home_is_refused_with_a_remedy(tmp_path: Path, version: str) -> None:
    if version:
        launcher = make_java(tmp_path, version)
    if version == "21":  # it only says to be one
        launcher.unlink()
        version = ""

    with pytest.raises(ConfigurationError) as caught:
        find_java({"JAVA_HOME": str(tmp_path)})

    message = str(caught.value)
    assert caught.value.code == Exit.CONFIGURATION
    assert f"JAVA_HOME: {tmp_path}/bin/java is {version or 'no working Java'}; " in message
    assert "pip install 'nats-logship[receiver]'" in message
    assert "\n" not in message
