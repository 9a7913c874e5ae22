"""Which files a person's globs take; which hosts, the tests of tail and purge show."""

import pytest

from broker.app.selection import LineSelection


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
