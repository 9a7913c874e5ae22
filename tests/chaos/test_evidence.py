"""What a failing run leaves of its disks."""

import tarfile
from pathlib import Path

import zstandard

from tests.chaos.evidence import pack_folder


def packed(folder: Path, room: int) -> dict[str, bytes]:
    pack_folder(folder, room)
    with (
        (folder / "disks.tar.zst").open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as plain,
        tarfile.open(fileobj=plain, mode="r|") as archive,
    ):
        return {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_disks_are_packed_with_their_states_first(tmp_path: Path) -> None:
    put(tmp_path / "brokers/b1/store/1.blk", b"block")
    put(tmp_path / "hosts/web/logs/app.log", b"line\n")
    put(tmp_path / "central/state/p0.gaps", b"{}")

    found = packed(tmp_path, 100)

    assert list(found.items()) == [
        ("central/state/p0.gaps", b"{}"),
        ("hosts/web/logs/app.log", b"line\n"),
        ("brokers/b1/store/1.blk", b"block"),
    ]


def test_what_finds_no_room_is_named_and_what_fills_disks_is_none_of_it(tmp_path: Path) -> None:
    put(tmp_path / "central/out/web.log", b"12345")
    put(tmp_path / "central/out/web.log.000001", b"123456789")
    put(tmp_path / "central/out/.ballast/7", b"")
    put(tmp_path / "hosts/web/logs/app.log", b"123456")

    found = packed(tmp_path, 10)

    assert found == {"central/out/web.log": b"12345"}
    assert (tmp_path / "left-out.txt").read_text() == (
        "central/out/web.log.000001: 9 bytes\nhosts/web/logs/app.log: 6 bytes\n"
    )


def test_what_cannot_be_read_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    put(tmp_path / "central/out/web.log", b"1")
    (tmp_path / "central/out/gone.log").symlink_to("nowhere")
    (tmp_path / "brokers").symlink_to("nowhere")

    assert packed(tmp_path, 10) == {"central/out/web.log": b"1"}
