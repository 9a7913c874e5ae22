"""One file, one partition: whoever is first, also when several are."""

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from receiver.writing import owners
from receiver.writing.known import Damaged
from receiver.writing.layout import Days, Layout
from receiver.writing.owners import KnownOwners, Owners, Unregistered, owner_of

BY_FILE = Layout("{host}/{file}")


def test_of_many_that_claim_a_host_at_once_one_gets_its_name(tmp_path: Path) -> None:
    for host in (f"host{turn}" for turn in range(20)):
        with ThreadPoolExecutor(8) as pool:
            claims = [pool.submit(Owners(tmp_path, n).live_name, host) for n in range(8)]
        names = [claim.result() for claim in claims]

        assert len(set(names)) == 8
        assert names.count(f"{host}.log") == 1
        for number, name in enumerate(names):
            assert owner_of(tmp_path, name) == number


def test_a_claim_outlives_the_process_and_whoever_died_while_claiming(tmp_path: Path) -> None:
    register = Owners(tmp_path, 3)
    assert register.live_name("web01") == "web01.log"
    register.sync()
    (tmp_path / ".owners" / ".p3").write_bytes(b"")
    owners._known.clear()

    assert Owners(tmp_path, 3).live_name("web01") == "web01.log"
    assert Owners(tmp_path, 3).live_name("web02") == "web02.log"
    assert Owners(tmp_path, 4).live_name("web01") == "web01..p4.log"


def has_as_many_names_as_it_may(path: Path, folder: Path) -> bool:
    for number in range(70_000):  # ext4 allows 65,000
        try:
            os.link(path, folder / str(number))
        except OSError as error:
            return error.errno == errno.EMLINK
    return False


def test_more_files_than_one_may_have_names_of_are_registered(tmp_path: Path) -> None:
    register = Owners(tmp_path, 3)
    assert register.live_name("web01") == "web01.log"
    (tmp_path / "names").mkdir()
    if not has_as_many_names_as_it_may(tmp_path / ".owners/.p3", tmp_path / "names"):
        pytest.skip("this file system allows any number of names")

    names = [register.live_name(f"host{number}") for number in range(3)]

    register.sync()
    assert names == ["host0.log", "host1.log", "host2.log"]
    assert [owner_of(tmp_path, name) for name in names] == [3, 3, 3]
    shutil.rmtree(tmp_path / "names")


def test_a_register_that_could_not_be_brought_to_disk_is_brought_there_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(owners, "sync_folder", lambda folder: _failing_first(synced, folder))
    register = Owners(tmp_path, 3)
    register.live_name("web01")

    with pytest.raises(OSError, match="Input/output"):
        register.sync()
    owners._known.clear()
    later = Owners(tmp_path, 3)
    later.live_name("web01")
    later.sync()
    later.sync()
    owners._synced.clear()  # as in another process, which finds names and cannot know
    Owners(tmp_path, 3).sync()

    assert len(synced) == 3


def _failing_first(synced: list[Path], folder: Path) -> None:
    synced.append(folder)
    if len(synced) == 1:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_of_a_file_nobody_has_claimed_there_is_no_owner(tmp_path: Path) -> None:
    assert owner_of(tmp_path, "web01.log") is None


def test_a_bit_that_changed_in_an_entry_gives_no_host_a_second_file(tmp_path: Path) -> None:
    Owners(tmp_path, 12).live_name("web01")
    (entry,) = (path for path in (tmp_path / ".owners").iterdir() if not path.name.startswith("."))
    written = entry.read_bytes()

    changes = [written[:end] for end in range(len(written))]
    for bit in range(8 * len(written)):
        changed = bytearray(written)
        changed[bit // 8] ^= 1 << bit % 8
        changes.append(bytes(changed))
    for change in changes:
        entry.write_bytes(change)
        owners._known.clear()
        with pytest.raises(Damaged, match="remove it"):
            Owners(tmp_path, 12).live_name("web01")


def named(register: Owners, host: str, numbers: range) -> list[str]:
    return [register.live_name(host, f"/log/{number}/a") for number in numbers]


def test_a_host_that_makes_up_files_without_end_has_one_for_the_rest_of_them(
    tmp_path: Path,
) -> None:
    register = Owners(tmp_path, 3, BY_FILE, most_of_host=20)

    names = named(register, "evil", range(300))

    own = [f"evil/log/{number}/a" for number in range(9)]
    assert names == [*own, *["evil/%overflow"] * 291]
    assert register.live_name("web01", "/log/500/a") == "web01/log/500/a"
    assert len(list((tmp_path / ".owners").iterdir())) < 50
    (notice,) = register.notices()
    assert "host evil" in notice
    assert "evil/%overflow" in notice
    assert Owners(tmp_path, 3, BY_FILE, most_of_host=20).notices() == register.notices() == []


def test_whoever_comes_after_a_death_gives_lines_the_same_files(tmp_path: Path) -> None:
    before = named(Owners(tmp_path, 3, BY_FILE, most_of_host=20), "evil", range(30))
    owners._known.clear()  # as in another process

    after = Owners(tmp_path, 3, BY_FILE, most_of_host=20)
    reading = KnownOwners(tmp_path, 3, BY_FILE, Days(), most_of_host=20)

    assert named(after, "evil", range(29, -1, -1))[::-1] == before
    assert named(reading, "evil", range(30)) == before
    assert set(named(after, "evil", range(100, 200))) == {"evil/%overflow"}


def test_another_partition_has_a_file_of_its_own_for_the_rest(tmp_path: Path) -> None:
    named(Owners(tmp_path, 3, BY_FILE, most_of_host=20), "evil", range(30))

    names = named(Owners(tmp_path, 4, BY_FILE, most_of_host=20), "evil", range(100, 130))

    assert set(names) == {"evil..p4/%overflow"}


def test_a_file_that_is_called_like_the_one_for_the_rest_is_another(tmp_path: Path) -> None:
    register = Owners(tmp_path, 3, BY_FILE, most_of_host=20)
    files = ("%overflow", "/%overflow", "/%overflow/a")

    own = {register.live_name("evil", file) for file in files}
    rest = set(named(register, "evil", range(30)))

    assert len(own) == 3
    assert own.isdisjoint(rest)


def test_a_replay_gives_a_host_as_many_files_and_no_more(tmp_path: Path) -> None:
    register = Unregistered(tmp_path, BY_FILE, Days(), most_of_host=20)

    names = named(register, "evil", range(300))

    assert names.count("evil/%overflow") == 291
