"""Which lines a person's globs take."""

import pytest

from broker.app.selection import LineSelection


@pytest.mark.parametrize(
    ("globs", "host", "wanted"),
    [
        pytest.param((), "web01", True, id="all"),
        pytest.param(("web*",), "web01.example.net", True, id="a star takes dots in"),
        pytest.param(("web*",), "db01", False, id="another"),
        pytest.param(("db?1", "web01"), "web01", True, id="one of several"),
        pytest.param(("WEB01",), "web01", False, id="case counts"),
    ],
)
def test_hosts_are_chosen_by_glob(globs: tuple[str, ...], host: str, wanted: bool) -> None:
    assert LineSelection(hosts=globs).wants_host(host) is wanted


@pytest.mark.parametrize(
    ("glob", "file", "wanted"),
    [
        pytest.param("app.log", "/var/log/app.log", True, id="a name in any folder"),
        pytest.param("/var/log/*.log", "/var/log/deep/app.log", True, id="a star takes slashes in"),
        pytest.param("/var/*", "/srv/app.log", False, id="another folder"),
        pytest.param("*", "", False, id="no known file"),
    ],
)
def test_files_are_chosen_by_path_or_name(glob: str, file: str, wanted: bool) -> None:
    assert LineSelection(files=(glob,)).wants_file(file) is wanted
