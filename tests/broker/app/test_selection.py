"""Which lines a person's globs take."""

import pytest

from broker.app.selection import LineSelection


@pytest.mark.parametrize(
    ("globs", "host", "wanted"),
    [
        ((), "web01", True),
        (("web*",), "web01.example.net", True),
        (("web*",), "db01", False),
        (("db?1", "web01"), "web01", True),
        (("WEB01",), "web01", False),
    ],
)
def test_hosts_are_chosen_by_glob(globs: tuple[str, ...], host: str, wanted: bool) -> None:
    assert LineSelection(hosts=globs).wants_host(host) is wanted


@pytest.mark.parametrize(
    ("glob", "file", "wanted"),
    [
        ("app.log", "/var/log/app.log", True),
        ("/var/log/*.log", "/var/log/deep/app.log", True),
        ("/var/*", "/srv/app.log", False),
        ("*", "", False),
    ],
)
def test_files_are_chosen_by_path_or_name(glob: str, file: str, wanted: bool) -> None:
    assert LineSelection(files=(glob,)).wants_file(file) is wanted
