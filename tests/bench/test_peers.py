"""What is said to peers, in their safe settings and in their fast ones, and how they are found; no peer is started."""

from pathlib import Path

import pytest

from bench.field.catalogue import OURS, systems
from bench.field.fluent_bit import FLUENT_BIT, FLUENT_BIT_FAST
from bench.field.peer import Client, Installed, Peer, Server
from bench.field.rsyslog import RSYSLOG, RSYSLOG_FAST
from bench.field.syslog_ng import SYSLOG_NG, SYSLOG_NG_FAST, SYSLOG_NG_IN_MEMORY
from bench.trial import Case, tried
from broker.app.address import Address

PEERS = {
    "rsyslog, safe": RSYSLOG,
    "rsyslog, fast": RSYSLOG_FAST,
    "syslog-ng, safe": SYSLOG_NG,
    "syslog-ng, fast": SYSLOG_NG_FAST,
    "syslog-ng, in memory": SYSLOG_NG_IN_MEMORY,
    "fluent-bit, safe": FLUENT_BIT,
    "fluent-bit, fast": FLUENT_BIT_FAST,
}
_CENTRAL = Address("10.0.0.9", 2514)
_CLIENT = Client("web01", Path("/the/logs"), Path("/the/state"), _CENTRAL)
_SERVER = Server(Path("/the/output"), Path("/central/state"), _CENTRAL)


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_a_client_is_told_what_to_follow_where_to_remember_it_and_whom_to_send_it(
    peer: Peer,
) -> None:
    told = peer.client(_CLIENT)

    for what in ("web01", "/the/logs", "10.0.0.9", "2514"):
        assert what in told
    assert "/the/state" in f"{told} {peer.words(Path('/a.conf'), _CLIENT.state)}"


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
    rsyslog = PEERS["rsyslog, fast"]
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
    assert "no-such-program" in absent.missing(tmp_path)
    assert "pack-a" in absent.missing(tmp_path)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'librelp.so.0: cannot open shared object file' >&2; exit 127", "librelp.so.0"),
        ("exit 1", "exit code 1"),
        (None, "Permission denied"),
    ],
)
def test_a_peer_that_does_not_run_is_absent_before_anything_starts(
    tmp_path: Path, script: str | None, said: str
) -> None:
    program = tmp_path / "rsyslog/usr/sbin/rsyslogd"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755 if script else 0o644)

    heard: list[str] = []
    (result,) = tried(
        Case("any", {}, lambda *_: pytest.fail("it was measured")),
        (systems(tmp_path)["rsyslog"],),
        1,
        tmp_path / "run",
        heard.append,
    )

    assert result.runs == ()
    assert heard == [f"any: rsyslog is absent: {result.absent}"]
    assert said in result.absent
    assert "\n" not in result.absent


def test_whoever_is_measured_has_a_name_of_its_own_and_ours_comes_first(tmp_path: Path) -> None:
    every = systems(tmp_path)

    assert next(iter(every)) == OURS
    assert {"rsyslog", "syslog-ng", "syslog-ng-memory", "fluent-bit", "cp", "nats-py"} < set(every)
    assert all(name == system.name for name, system in every.items())
