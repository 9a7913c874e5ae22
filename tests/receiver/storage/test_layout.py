"""Paths below the output folder: for any names they are safe, unique and none of ours."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.wire.subjects import InvalidHost, validate_host
from receiver.storage import rotation
from receiver.storage.layout import Layout, make_safe_path

LAYOUTS = [
    *("{host}.log", "{host}/{file}", "{date}/{host}.log", "{host}/{date}.log"),
    *("a/{host}/{file}", "{date}/{host}/{file}"),
]
PIECES = ["\n", "\udcff", "é", "x" * 300, "/", "//", ".", "..", "%", "%2E", "-", "a"]
PIECES += [".log", ".000001", ".gz", ".zst"]

hosts = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S"], include_characters=".%-"),
    min_size=1,
    max_size=253,
)
files = st.one_of(
    st.none(),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join),
    st.lists(st.sampled_from(PIECES), min_size=25, max_size=40).map("/".join),
    st.binary(min_size=1, max_size=600).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)


def is_host(name: str) -> bool:
    try:
        validate_host(name)
    except InvalidHost:
        return False
    return True


@pytest.mark.parametrize("template", LAYOUTS)
@given(
    sources=st.lists(
        st.tuples(hosts.filter(is_host) | st.just("a.log.000001"), files), unique=True, max_size=6
    )
)
def test_any_host_and_file_have_a_path_of_their_own_below_the_output(
    template: str, sources: list[tuple[str, str | None]]
) -> None:
    layout = Layout(template)
    if not layout.has_file:
        sources = list({host: (host, file) for host, file in sources}.values())

    marked = [(host, file, mark) for host, file in sources for mark in ("", "..p99999")]
    paths = [layout.path(host, file, "2026-11-21", mark) for host, file, mark in marked]

    assert len(set(paths)) == len(paths)
    for path in paths:
        assert path.isprintable()
        assert len(path.encode()) < 1800
        *folders, name = path.split("/")
        assert len(folders) <= 33
        assert not rotation.parse_segment(name)
        for part in (*folders, f"{name}..%%f"):
            assert part
            assert not part.startswith(".")
            assert len(f".{part}.000001.zst.new".encode()) <= 255


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("/var/log/nginx/access.log", "var/log/nginx/access.log"),
        ("/var/log/app.log.1", "var/log/app.log.1"),
        ("/var/log/app.20260101", "var/log/app%2E20260101"),  # like a closed one
        ("/home/x/.history", "home/x/%2Ehistory"),
        ("/a/../b", "a/%2E./b"),
        ("a.log", "%relative/a.log"),
        ("C:\\logs\\a.log", "%relative/C:\\logs\\a.log"),
        *(("-", "%stdin"), (None, "%unnamed"), ("/50%\n\udcff", "50%25%0A%FF")),
    ],
)
def test_a_source_file_is_found_under_its_path(file: str | None, path: str) -> None:
    assert make_safe_path(file) == path


@pytest.mark.parametrize(
    "template",
    [
        *("/{host}.log", "../{host}.log", "{file}", "{hots}.log", "{host}-{host}.log"),
        *("{host}/x-{file}", "{host}.000001", "{host}" + "x" * 40 + ".log", "{host}//a.log"),
        *("{host}%.log", "{host}\n.log", "{host}.log/", "{host}/.a.log", "", "{file}/{host}.log"),
    ],
)
def test_a_template_that_cannot_work_is_refused_with_an_example(template: str) -> None:
    with pytest.raises(ValueError, match=re.escape("{host}/{file}: {host} must occur once")):
        Layout(template)


@pytest.mark.parametrize("template", LAYOUTS)
@given(host=hosts.filter(is_host) | st.just("a.log.000001"), file=files)
def test_host_and_day_can_be_read_from_a_path(template: str, host: str, file: str | None) -> None:
    layout = Layout(template)

    today, other = (layout.path(host, file, date) for date in ("2026-11-21", "2026-11-22"))

    parsed = layout.parse(today)
    assert parsed.host == rotation.make_stem(host)
    assert (parsed.mark, parsed.day) == ("", "2026-11-21" if layout.has_date else "")
    assert parsed.series == layout.parse(other).series
