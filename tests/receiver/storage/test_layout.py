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
    *("{host}/{namespace}/{pod}/{container}.log", "{date}/{host}/{container}.log"),
    "{host}/{pod}/{date}/{container}/a.log",
]
LINK = "/var/log/containers/{}_{}_{}-" + "0a" * 32 + ".log"
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
    st.lists(st.sampled_from(["a", "a-b", "x.0", "a" * 253, "B"]), min_size=3, max_size=3).map(
        lambda names: LINK.format(*names)
    ),
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
    sources = list({(host, layout.source(file)): (host, file) for host, file in sources}.values())

    marked = [(host, file, mark) for host, file in sources for mark in ("", "..p99999")]
    paths = [
        layout.path(host, layout.source(file), "2026-11-21", mark) for host, file, mark in marked
    ]

    assert len(set(paths)) == len(paths)
    for path in paths:
        assert path.isprintable()
        assert len(path.encode()) < 1800
        *folders, name = path.split("/")
        assert len(folders) <= 34
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
        *(("-", "%stdin"), ("", "%unnamed"), ("/50%\n\udcff", "50%25%0A%FF")),
    ],
)
def test_a_source_file_is_found_under_its_path(file: str, path: str) -> None:
    assert make_safe_path(file) == path


@pytest.mark.parametrize(
    "template",
    [
        *("/{host}.log", "../{host}.log", "{file}", "{hots}.log", "{host}-{host}.log"),
        *("{host}/x-{file}", "{host}.000001", "{host}" + "x" * 40 + ".log", "{host}//a.log"),
        *("{namespace}/{host}.log", "{host}/{pod}-{container}.log", "{host}-{pod}.log"),
        *("{host}/{pod}/{file}", "{host}/{pod}", "{host}/{pod}.txt.log", "{host}/{pod}/{pod}.log"),
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

    source = layout.source(file)
    today, other = (layout.path(host, source, date) for date in ("2026-11-21", "2026-11-22"))

    parsed = layout.parse(today)
    assert parsed.host == rotation.make_stem(host)
    assert (parsed.mark, parsed.day) == ("", "2026-11-21" if layout.has_date else "")
    assert parsed.series == layout.parse(other).series


BY_POD = "{host}/{namespace}/{pod}/{container}.log"


@pytest.mark.parametrize(
    ("template", "file", "path"),
    [
        (BY_POD, LINK.format("web-5d4f", "shop", "app"), "h/shop/web-5d4f/app.log"),
        (BY_POD, LINK.format("a.b", "s", "c-d"), "h/s/a.b/c-d.log"),
        (BY_POD, "/var/log/containers/p_n_c-0a.log", "h/n/p/c.log"),  # a name that was cut
        (BY_POD, "/host/var/log/pods/shop_web_12ab-34/app/7.log", "h/shop/web/app.log"),
        (BY_POD, "/var/log/pods/s_w_u/app/0.log.20260101-000000", "h/s/w/app.log"),
        ("{host}/{pod}.log", LINK.format("p", "n", "c"), "h/p.log"),
        ("{host}/{container}.log", f"/d/containers/{'0a' * 32}/{'0a' * 32}-json.log", "h/ID.log"),
        (BY_POD, f"/d/containers/{'0a' * 32}/{'0a' * 32}-json.log", "h/%other/d/containers/ID/ID"),
        (BY_POD, "/var/log/syslog", "h/%other/var/log/syslog"),
        (BY_POD, "-", "h/%other/%stdin"),
        (BY_POD, "", "h/%other/%unnamed"),
        *(
            (BY_POD, f"/l/{file}", f"h/%other/l/{safe}")
            for file, safe in [
                ("containers/.._n_c-0a.log", "containers/%2E._n_c-0a.log"),
                ("containers/p_n_C-0a.log", "containers/p_n_C-0a.log"),
                ("pods/n_../u_u/c/0.log", "pods/n_../u_u/c/0.log"),
                ("pods/n_p_u/../0.log", "pods/n_p_u/%2E./0.log"),
            ]
        ),
        ("{host}/{pod}/{date}.log", LINK.format("p", "n", "c"), "h/p/2026-11-21.log"),
        ("{host}/{pod}/{date}.log", "/a.log", "h/%other/2026-11-21/a.log"),
        ("{date}/{host}/{pod}.log", "/a.log", "2026-11-21/h/%other/a.log"),
    ],
)
def test_containers_have_files_by_their_names_and_other_files_a_folder_apart(
    template: str, file: str, path: str
) -> None:
    layout = Layout(template)

    found = layout.path("h", layout.source(file), "2026-11-21")

    assert found.replace("0a" * 32, "ID").removesuffix("-json.log") == path


def test_pods_of_one_name_share_a_file_whatever_their_ids_and_restarts() -> None:
    layout = Layout(BY_POD)
    files = [f"/var/log/pods/s_db-0_{uid}/app/{n}.log" for uid in ("1a", "2b") for n in (0, 1)]

    assert len({layout.source(one) for one in (*files, LINK.format("db-0", "s", "app"))}) == 1
