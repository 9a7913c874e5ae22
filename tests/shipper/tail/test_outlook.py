"""A look shows each file once, at the path that it is followed at if that is as good as another."""

from shipper.tail.candidates import outlook
from shipper.tail.scan import FileEntry, FileKey

KEY = FileKey(1, 7)


def seen(path: str, group: str = "") -> FileEntry:
    return FileEntry(path, path, group or path, KEY, 10, 1, wanted=True)


def test_a_file_with_two_names_stays_where_it_was_followed() -> None:
    both = [seen("/a.log"), seen("/b.log")]

    assert outlook(both, {}, None).files[KEY].path == "/a.log"
    assert outlook(both, {KEY: "/b.log"}, None).files[KEY].path == "/b.log"


def test_a_live_path_is_better_than_the_rotated_one_that_was_followed() -> None:
    both = [seen("/a.log"), seen("/a.log.1", "/a.log")]

    shown = outlook(both, {KEY: "/a.log.1"}, None)

    assert shown.files[KEY].path == "/a.log"
    assert set(shown.live) == {"/a.log"}
    assert shown.inodes["/a.log"] == (7,)
