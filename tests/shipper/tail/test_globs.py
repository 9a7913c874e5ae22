"""What a glob names: the shell's rules for a name, `**` for any number of folders, and what an exclusion covers."""

import pytest

from shipper.tail.paths import Selection, pattern_of


@pytest.mark.parametrize(
    ("glob", "shown", "hidden"),
    [
        pytest.param(
            "/l/*.log", ["/l/a.log"], ["/l/.a.log", "/l/d/a.log", "/l/a.log.1"], id="star"
        ),
        pytest.param("/l/.*.log", ["/l/.a.log"], ["/l/a.log"], id="a dot that is named"),
        pytest.param("/l/?.log", ["/l/a.log"], ["/l/ab.log", "/l/..log", "/l//.log"], id="letter"),
        pytest.param("/l/[a-c]", ["/l/b"], ["/l/d", "/l/-"], id="range"),
        pytest.param("/l/[!a-c]", ["/l/d"], ["/l/b", "/l/.", "/l//"], id="all but a range"),
        pytest.param("/l/[]a]", ["/l/]", "/l/a"], ["/l/b"], id="a bracket in brackets"),
        pytest.param("/l/[a", ["/l/[a"], ["/l/a"], id="an open bracket is itself"),
        pytest.param("/l/[z-a]", [], ["/l/z", "/l/a", "/l/m"], id="a range that holds nothing"),
        pytest.param(
            "/l/[a&&b~|^]", ["/l/&", "/l/~", "/l/^"], ["/l/c"], id="letters of no meaning"
        ),
        pytest.param(
            "/l/**/a", ["/l/a", "/l/x/a", "/l/x/y/a"], ["/l/.x/a", "/la", "/l/xa"], id="folders"
        ),
        pytest.param("/l/**", ["/l/a", "/l/x/a"], ["/l/.a", "/l/.x/a", "/l"], id="all beneath"),
        pytest.param("/l/a**b", ["/l/ab", "/l/axb"], ["/l/a/b"], id="two stars in a name are one"),
        pytest.param("/l/a+(b).log", ["/l/a+(b).log"], ["/l/aab.log"], id="no expression"),
    ],
)
def test_a_glob_shows_what_a_shell_would(glob: str, shown: list[str], hidden: list[str]) -> None:
    matches = pattern_of(glob).fullmatch

    assert [path for path in [*shown, *hidden] if matches(path)] == shown


@pytest.mark.parametrize(
    ("glob", "path", "out"),
    [
        pytest.param("/l/debug.log", "/l/debug.log", True, id="a file"),
        pytest.param("/l/debug", "/l/debug/a/b.log", True, id="all in a folder"),
        pytest.param("/l/debug", "/l/debug.log", False, id="no beginning of a name"),
        pytest.param("/l/**/*.tmp", "/l/.x/y/.z.tmp", True, id="hidden names as well"),
        pytest.param("/l/**/tmp", "/l/a/tmp/b/c.log", True, id="folders of a name anywhere"),
        pytest.param("/l/*", "/m/a", False, id="elsewhere"),
    ],
)
def test_an_exclusion_covers_what_it_names_and_all_beneath(glob: str, path: str, out: bool) -> None:
    assert Selection.of(["/**"], [glob]).excludes(path) is out


def test_what_an_excluded_file_was_rotated_to_is_not_shown() -> None:
    selection = Selection.of(["/l/*"], ["/l/debug.log"])

    assert [p for p in ("/l/a.log.1", "/l/debug.log.1") if selection.shows(p)] == ["/l/a.log.1"]
