"""What a glob names, what an exclusion covers, and the names that rotation gives."""

import fnmatch
import os
import re
from pathlib import Path

import click
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nats_logship.app.configuration import load
from shipper.settings import ShipperSettings
from shipper.sources.files.identity import FileEntry, FileKey
from shipper.sources.files.paths import Selection, group_of, pattern_of
from shipper.sources.inputs import find_inputs


@pytest.mark.parametrize(
    ("glob", "shown", "hidden"),
    [
        ("/l/*.log", "/l/a.log", "/l/.a.log /l/d/a.log /l/a.log.1"),
        ("/l/.*.log", "/l/.a.log", "/l/a.log"),
        ("/l/?.log", "/l/a.log", "/l/ab.log /l/..log /l//.log"),
        ("/l/[a-c]", "/l/b", "/l/d /l/-"),
        ("/l/[!a-c]", "/l/d", "/l/b /l/. /l//"),
        ("/l/[]a]", "/l/] /l/a", "/l/b"),
        ("/l/[a", "/l/[a", "/l/a"),
        ("/l/[z-a]", "", "/l/z /l/a /l/m"),
        ("/l/[a&&b~|^]", "/l/& /l/~ /l/^", "/l/c"),
        ("/l/**/a", "/l/a /l/x/a /l/x/y/a", "/l/.x/a /la /l/xa"),
        ("/l/**", "/l/a /l/x/a", "/l/.a /l/.x/a /l"),
        ("/l/a**b", "/l/ab /l/axb", "/l/a/b"),
        ("/l/a+(b).log", "/l/a+(b).log", "/l/aab.log"),
        ("/l/{a,b}.log", "/l/a.log /l/b.log", "/l/c.log /l/{a,b}.log"),
        ("/l/a{,.1}", "/l/a /l/a.1", "/l/a.2"),
        ("/l/{a,{b,c}d}", "/l/a /l/bd /l/cd", "/l/ad /l/b"),
        ("/l/{a,x/*}.log", "/l/a.log /l/x/b.log", "/l/x/y/b.log"),
        ("/{l,m/**}/a", "/l/a /m/a /m/x/a", "/k/a"),
        ("/l/{a}{b}", "/l/{a}{b}", "/l/ab"),
        ("/l/{a,b", "/l/{a,b", "/l/a"),
        ("/l/{x{a,b}", "/l/{xa /l/{xb", "/l/xa"),
        ("/l/[{]a,b}", "/l/{a,b}", "/l/a"),
        ("/l/{[,],a}", "/l/, /l/a", "/l/["),
    ],
)
def test_a_glob_shows_what_a_shell_would(glob: str, shown: str, hidden: str) -> None:
    matches = pattern_of(glob).fullmatch

    assert [path for path in f"{shown} {hidden}".split() if matches(path)] == shown.split()


def is_shown(glob: str, path: str) -> bool:
    """Whether a glob of stars, letters and dots shows a path, found by trying everything."""
    first, _, more = glob.partition("/")
    name, _, beneath = path.partition("/")
    if first == "**":
        is_last = not name or name.startswith(".")
        return is_shown(more, path) or (not is_last and is_shown(glob, beneath))
    if not more or not beneath:
        return not more and not beneath and is_named(first, name)
    return is_named(first, name) and is_shown(more, beneath)


def is_named(glob: str, name: str) -> bool:
    if glob.startswith("*") and name.startswith("."):
        return False
    parts = ["[^/]*" if letter == "*" else re.escape(letter) for letter in glob]
    return re.fullmatch("".join(parts), name) is not None


names = st.text("ab.", min_size=1, max_size=4)
parts = st.one_of(
    st.just("**"), st.text("ab.*", min_size=1, max_size=5).filter(lambda s: s != "**")
)


@settings(max_examples=500)
@given(
    st.lists(parts, max_size=5),
    st.text("ab.*", min_size=1, max_size=5),
    st.lists(names, max_size=6),
)
def test_a_glob_of_many_stars_shows_what_trying_everything_finds(
    folders: list[str], last: str, path: list[str]
) -> None:
    glob, tried = "/".join((*folders, last)), "/".join((*path, "a"))
    assume(last != "**")
    assert bool(pattern_of(glob).fullmatch(tried)) == is_shown(glob, tried)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("/log/*-*-*-*-*-*-*.log", f"/log/{'-' * 250}.lox"),
        ("/**/a/**/a/**/a/**/a/**/b", "/a" * 2000),
        ("/**/*-*/**/*-*/**/*-*-*/b", "/--" * 1300),
    ],
    ids=["of a name", "of folders", "of both"],
)
def test_no_name_of_a_file_takes_long_to_match_with_a_glob_of_many_stars(
    glob: str, path: str
) -> None:
    assert pattern_of(glob).fullmatch(path) is None
    assert not Selection.of(["/**"], [glob]).excludes(path)


@pytest.mark.parametrize(
    ("glob", "path", "out"),
    [
        ("/l/debug.log", "/l/debug.log", True),
        ("/l/debug", "/l/debug/a/b.log", True),
        ("/l/debug", "/l/debug.log", False),
        ("/l/**/*.tmp", "/l/.x/y/.z.tmp", True),
        ("/l/**/tmp", "/l/a/tmp/b/c.log", True),
        ("/l/*", "/m/a", False),
        ("/l/{a,b}", "/l/b/c.log", True),
        ("/l/app[1].log", "/l/app[1].log", True),
        ("/l/app[1].log", "/l/app1.log", True),
    ],
)
def test_an_exclusion_covers_what_it_names_and_all_beneath(glob: str, path: str, out: bool) -> None:
    assert Selection.of(["/**"], [glob]).excludes(path) is out


@pytest.mark.parametrize("end", [r"\Z", r"\z"])
def test_brackets_match_whichever_end_python_gives_expressions(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    translate = fnmatch.translate
    monkeypatch.setattr(fnmatch, "translate", lambda glob: f"{translate(glob)[:-2]}{end}")

    glob = pattern_of.__wrapped__("/l/app[12].log", excludes=True)

    assert [name for name in ("/l/app1.log", "/l/app3.log") if glob.fullmatch(name)] == [
        "/l/app1.log"
    ]


def test_alternatives_may_be_whole_paths() -> None:
    selection = Selection.of(["{/l,/m}/a", "{b,c}"])

    assert selection.shows("/l/a")
    assert selection.shows("/m/a")
    assert selection.shows(str(Path.cwd() / "b"))


def test_what_an_excluded_file_was_rotated_to_is_not_shown() -> None:
    selection = Selection.of(["/l/*"], ["/l/debug.log"])

    assert [p for p in ("/l/a.log.1", "/l/debug.log.1") if selection.shows(p)] == ["/l/a.log.1"]


KEY = FileKey(1, 1)
LIVES = {"/log/app.log", "/log/current", "/log/syslog", "/log/web-1.log"}


@pytest.mark.parametrize(
    ("group", "paths"),
    [
        ("/log/app.log", "/log/app.log /log/app.log.1 /log/app.log.12 /log/app.log-20260101"),
        ("/log/app.log", "/log/app.log-20260101-1767225600 /log/app.log.2026-01-01T10:00:00Z"),
        ("/log/app.log", "/log/app.log.old /log/app.log.1.gz /log/app.log.gz"),
        ("/log/app.log", "/log/app.log-20260101.zst /log/app-20260101.log.xz"),
        ("/log/app.log", "/log/app-20260101.log /log/app-2026-01-01.log"),
        ("/log/syslog", "/log/syslog.1"),
        ("/log/web-1.log", "/log/web-1.log.2"),
        ("/log/app.log", "/log/app.1.log /log/app.log.1.lz4 /log/app.log.Z"),
        ("/log/current", "/log/@4000000065a1b2c3d4e5f6a7.s /log/@4000000065a1b2c3d4e5f6a7.u"),
        *((path, path) for path in ("/log/other.log.gz", "/log/app-1.log", "/log/@4000.s")),
        ("/x/app.log.1", "/x/app.log.1"),
    ],
)
def test_a_rotated_file_belongs_to_the_file_it_was(group: str, paths: str) -> None:
    assert {group_of(path, LIVES) for path in paths.split()} == {group}


def test_the_oldest_comes_first_and_among_equals_the_highest_number() -> None:
    times = {"app.log.1": 5, "app.log.10.gz": 5, "app.log.2.gz": 5, "app.log.0": 1}
    files = [FileEntry(name, name, "app.log", KEY, 1, at, False) for name, at in times.items()]

    in_order = [entry.path for entry in sorted(files, key=lambda entry: entry.age)]

    assert in_order == ["app.log.0", "app.log.10.gz", "app.log.2.gz", "app.log.1"]


@pytest.mark.parametrize("setting", ["file", "exclude"])
@pytest.mark.parametrize(
    "braces",
    [
        *("{aa,bb}" * 10, "{a,b}" * 5000, "{a," * 2000 + "}" * 2000, "{{a,b},{a,b}}" * 200),
        "{a,a}" * 300,
        "{" + ",".join(map(str, range(1001))) + "}",
    ],
    ids=["1,024", "very many", "nested", "both", "the same", "one"],
)
def test_braces_that_expand_to_over_a_thousand_globs_are_refused(setting: str, braces: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        load(ShipperSettings, {"file": ("x",), setting: (f"/tmp/{braces}",)}, None)
    text = refused.value.message
    assert text == f"--{setting}: {f'/tmp/{braces}'[:60]}… expands to more than 1,000 globs"


@pytest.mark.parametrize(
    ("pattern", "lacks"),
    [("/l/{a,b", "{ without }"), ("/l/{x{a,b}", "{ without }"), ("/l/a}.log", "} without {")]
    + [(pattern, "") for pattern in ("/l/{a}", "/l/[{]a", "/l/a[}]", "/l/{a,{b,c}}")],
)
@pytest.mark.parametrize("setting", ["file", "exclude"])
def test_a_brace_without_its_partner_is_refused(setting: str, pattern: str, lacks: str) -> None:
    if not lacks:
        assert getattr(load(ShipperSettings, {setting: (pattern,)}, None), setting) == (pattern,)
        return
    with pytest.raises(click.UsageError) as refused:
        load(ShipperSettings, {setting: (pattern,)}, None)
    assert refused.value.message.startswith(f"--{setting}: {pattern} has {lacks}; [")


def test_a_path_that_exists_may_have_any_brace(tmp_path: Path) -> None:
    (path := tmp_path / "a{b.log").touch()

    settings = load(ShipperSettings, {"file": (str(path),)}, None)
    assert settings.select_files({}).shows(str(path))


def test_braces_that_name_pipes_are_as_if_each_pipe_was_given(tmp_path: Path) -> None:
    pattern = f"{tmp_path}/{{a,b}}.{{fifo,log}}"
    assert load(ShipperSettings, {"file": (pattern,)}, None).file == (pattern,)
    for name in ("a.fifo", "b.fifo"):
        os.mkfifo(tmp_path / name)

    found = load(ShipperSettings, {"file": ("x", pattern)}, None).file

    names = ("a.fifo", "a.log", "b.fifo", "b.log")
    assert found == ("x", *(f"{tmp_path}/{name}" for name in names))
    assert [*find_inputs(found)] == [f"{tmp_path}/a.fifo", f"{tmp_path}/b.fifo"]


def test_commas_of_a_variable_separate_globs_but_not_in_braces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOGSHIPPER_FILE", "/l/{a,{b,c}d}.log, /k")

    assert load(ShipperSettings, {}, None).file == ("/l/{a,{b,c}d}.log", "/k")
