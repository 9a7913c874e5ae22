"""The names that rotation gives."""

import pytest

from shipper.tail.paths import age, group_of

LIVES = {"/log/app.log", "/log/syslog", "/log/web-1.log"}


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("/log/app.log", "/log/app.log"),
        ("/log/app.log.1", "/log/app.log"),
        ("/log/app.log.12", "/log/app.log"),
        ("/log/app.log-20260101", "/log/app.log"),
        ("/log/app.log-20260101-1767225600", "/log/app.log"),
        ("/log/app.log.2026-01-01T10:00:00Z", "/log/app.log"),
        ("/log/app.log.old", "/log/app.log"),
        ("/log/app-20260101.log", "/log/app.log"),
        ("/log/app-2026-01-01.log", "/log/app.log"),
        ("/log/syslog.1", "/log/syslog"),
        ("/log/web-1.log.2", "/log/web-1.log"),
        ("/log/app.log.1.gz", "/log/app.log"),
        ("/log/app.log.gz", "/log/app.log"),
        ("/log/app.log-20260101.zst", "/log/app.log"),
        ("/log/app-20260101.log.xz", "/log/app.log"),
        ("/log/other.log.gz", "/log/other.log.gz"),
        ("/log/app.log.1.lz4", "/log/app.log.1.lz4"),
        ("/log/app-1.log", "/log/app-1.log"),
        ("/log/other.log.1", "/log/other.log.1"),
        ("/elsewhere/app.log.1", "/elsewhere/app.log.1"),
    ],
)
def test_a_rotated_file_belongs_to_the_file_it_was(path: str, group: str) -> None:
    assert group_of(path, LIVES) == group


def test_the_oldest_comes_first_and_among_equals_the_highest_number() -> None:
    files = [(5, "app.log.1"), (5, "app.log.10.gz"), (5, "app.log.2.gz"), (1, "app.log.0")]

    in_order = [name for _, name in sorted(files, key=lambda file: age(*file))]

    assert in_order == ["app.log.0", "app.log.10.gz", "app.log.2.gz", "app.log.1"]
