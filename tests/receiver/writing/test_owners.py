"""One file, one partition: whoever is first, also when several are."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from receiver.writing import owners
from receiver.writing.owners import Owners, owner_of


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


def test_of_a_file_nobody_has_claimed_there_is_no_owner(tmp_path: Path) -> None:
    assert owner_of(tmp_path, "web01.log") is None
