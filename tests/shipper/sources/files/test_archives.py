"""A folder of archives alone: each is read once, whichever program compressed it."""

import os
from pathlib import Path

import pytest

from shipper.sources.files.paths import Compression
from shipper.sources.notices import NoticeKind
from tests.shipper.conftest import read_lines
from tests.shipper.host import SECOND, Host, packed
from tests.shipper.logs import Ship
from tests.shipper.sources.files.conftest import MakeHost


def put(host: Host, compression: Compression, *names: str) -> None:
    """Archive a line with each name, unfinished if the name is `cut`."""
    for name in names:
        line = name.encode() + b"\n" * (name != "cut")
        (host.folder / (name + compression.value)).write_bytes(packed(line, compression))


@pytest.mark.parametrize("compression", list(Compression))
async def test_archives_are_read_once_each_in_the_order_of_their_names(
    make_host: MakeHost, compression: Compression
) -> None:
    host = make_host(f"*{compression.value}")
    put(host, compression, "app.log.3", "app.log.1", "app.log.10", "app.log.2")
    put(host, compression, "db-20260103.log", "db-20260101.log", "2026-01-02", "2026-01-01", "cut")
    host.write("app.log.4", b"not an archive\n")
    await host.ship_out()

    found = host.shipped.decode()
    for ordered in (
        ["app.log.10", "app.log.3", "app.log.2", "app.log.1"],
        ["db-20260101.log", "db-20260103.log"],
        ["2026-01-01", "2026-01-02"],
    ):
        assert sorted(ordered, key=lambda name: found.index(f"{name}\n")) == ordered
    assert len(found) == len("".join(found.split())) + 8
    assert len(host.follower.ended_files) == 9

    put(host, compression, "app.log.0")
    await host.ship_out()
    await host.restart_with_saved_positions()
    put(host, compression, "db-20260104.log")
    await host.ship_out()

    assert host.shipped.decode().removeprefix(found) == "app.log.0\ndb-20260104.log\n"
    assert [one for one in host.notices if one.kind is not NoticeKind.FOUND] == []


async def test_archives_that_exist_are_not_read_from_their_end_but_new_ones_are(
    make_host: MakeHost,
) -> None:
    host = make_host("*.gz", from_end=True)
    put(host, Compression.GZIP, "old-20260101")
    assert await host.ship() == b""

    put(host, Compression.GZIP, "old-20260102")

    assert await host.ship() == b"old-20260102\n"


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("was_at_rest", [False, True])
async def test_an_archive_that_replaces_its_half_copy_is_read_from_where_that_ended(
    make_host: MakeHost, *, was_at_rest: bool, is_down: bool
) -> None:
    host = make_host("*.gz")
    content = b"".join(b"%s\n" % os.urandom(20).hex().encode() for _ in range(4000))
    data, path = packed(content, Compression.GZIP), host.folder / "app.log.1.gz"
    path.write_bytes(data[: len(data) // 3])
    await host.ship_out()
    host.later += 60 * SECOND * was_at_rest
    await host.ship_out()
    assert 0 < len(host.shipped) < len(content)

    if is_down:
        await host.follower.close()
    (host.folder / "whole").write_bytes(data)
    host.move("whole", path.name)
    if is_down:
        await host.restart_with_saved_positions()
    for _ in range(3):
        await host.ship_out()
        host.later += 10 * SECOND

    assert host.shipped == content


async def test_an_archive_that_begins_like_another_one_of_its_name_by_chance_is_read(
    make_host: MakeHost,
) -> None:
    host = make_host("*.gz")
    put(host, Compression.GZIP, "app.log.1")
    await host.ship_out()
    content = b"app.log.1\nanother line\n"

    (host.folder / "other").write_bytes(packed(content, Compression.GZIP))
    host.move("other", "app.log.1.gz")
    for _ in range(3):
        await host.ship_out()

    assert host.shipped == b"app.log.1\n" + content


async def test_a_pattern_that_names_no_archive_says_how_to_read_those_it_shows(
    make_host: MakeHost,
) -> None:
    host = make_host("*")
    put(host, Compression.ZSTD, "old")
    host.write("a.log", b"1\n")

    assert await host.ship() == b"1\n"
    assert "as in *.gz" in host.reported(NoticeKind.REFUSED)[0].text


@pytest.mark.nats
def test_once_ships_a_folder_of_archives_and_ends(
    logs_url: str, ship: Ship, make_host: MakeHost, tmp_path: Path
) -> None:
    host = make_host()
    put(host, Compression.GZIP, "a.1", "a.2")
    put(host, Compression.XZ, "cut")

    process = ship(logs_url, "--file", tmp_path / "*.{gz,xz}", "--once", "--grace", "0s")

    assert process.wait(40) == 0, process.last_output()
    assert sorted(read_lines(logs_url).split()) == [b"a.1", b"a.2", b"cut"]
