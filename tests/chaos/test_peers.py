"""What is said to peers, and how they are found and followed; no peer is started."""

from pathlib import Path

import pytest

from broker.address import Address
from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.peers.catalogue import COMMON, PEERS
from tests.chaos.peers.peer import Client, Installed, Peer, Server
from tests.chaos.peers.tail import Tail, numbers_in

_CENTRAL = Address("10.0.0.9", 2514)
_CLIENT = Client("web01", Path("/the/logs"), Path("/the/state"), _CENTRAL)
_SERVER = Server(Path("/the/output"), Path("/central/state"), _CENTRAL)


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_a_client_is_told_what_to_follow_where_to_remember_it_and_whom_to_send_it(
    peer: Peer,
) -> None:
    told = peer.client(_CLIENT)

    for what in ("web01", "/the/logs", "/the/state", "10.0.0.9", "2514"):
        assert what in told


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_a_server_is_told_where_to_listen_and_where_to_write_what_it_gets(peer: Peer) -> None:
    told = peer.server(_SERVER)

    for what in ("/the/output", "10.0.0.9", "2514"):
        assert what in told


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
@pytest.mark.parametrize("end", ["client", "server"])
def test_what_a_peer_is_told_has_an_end_to_everything_that_it_begins(peer: Peer, end: str) -> None:
    told = peer.client(_CLIENT) if end == "client" else peer.server(_SERVER)

    assert told.count("{") == told.count("}")
    assert told.count("(") == told.count(")")


def test_unpacked_packages_are_run_with_their_own_modules_and_libraries(tmp_path: Path) -> None:
    rsyslog = PEERS["rsyslog"]
    program = tmp_path / "rsyslog/usr/sbin/rsyslogd"
    module = tmp_path / "rsyslog/usr/lib/some-machine/rsyslog/imfile.so"
    library = tmp_path / "rsyslog/usr/lib/some-machine/librelp.so.0"
    for path in (program, module, library):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    installed = rsyslog.find(tmp_path)

    assert installed == Installed(program, module.parent, {"LD_LIBRARY_PATH": str(library.parent)})
    assert rsyslog.command(installed, Path("c.conf"), Path("state"))[:2] == [
        program,
        f"-M{module.parent}",
    ]


def test_a_peer_that_is_nowhere_names_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    absent = Peer(
        "absent", "no-such-program", lambda _: "", lambda _: "", lambda *_: [], "-v", ("pack-a",)
    )

    assert absent.find(tmp_path) is None
    assert "no-such-program" in absent.missing
    assert "pack-a" in absent.missing


def test_how_far_lines_have_come_is_told_for_each_log_whatever_their_order_is() -> None:
    text = (
        b"app 00000007 seven\nb 00000001 one\napp 00000006 six\nno line of a log\napp 00000008 ei"
    )

    assert numbers_in(text) == {b"app": 7, b"b": 1}


def test_a_growing_file_is_read_on_from_where_its_last_whole_line_ended(tmp_path: Path) -> None:
    path = tmp_path / "web01.log"
    tail = Tail(path)

    assert tail.read() == {}

    path.write_bytes(b"app 00000007 seven\napp 000000")
    assert tail.read() == {b"app": 7}

    with path.open("ab") as file:
        file.write(b"08 eight\n")
    assert tail.read() == {b"app": 8}


def test_every_suite_can_be_struck_by_the_common_kinds() -> None:
    for name in (name for names in COMMON.values() for name in names):
        kind = CATALOGUE[name].kind

        assert kind.needs <= {"shaping", "blocks"}
        assert not kind.destroys
