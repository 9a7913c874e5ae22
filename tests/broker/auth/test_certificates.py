"""Certificates of a store are what real TLS accepts, and no link leads their files elsewhere."""

import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.auth.certificates import Pki
from nats_logship.app.exits import ConfigurationError, OperatorError

NOW = datetime.now(UTC)  # noqa: TID251 - the clock of OpenSSL
NAMES = ("broker1.example.net", "127.0.0.1", "::1", "localhost")


def init(store: Path, *names: str) -> Pki:
    pki = Pki(store)
    pki.sign(pki.create_authority("tests", NOW), names or ["localhost"], NOW)
    return pki


def shake_hands(server: Path, trusted: Path, name: str) -> None:
    """Connect a TLS server and client in memory; both show the server's certificate."""
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    shows = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    checks = ssl.create_default_context(cafile=str(trusted))
    checks.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does unasked
    shows.load_cert_chain(server)
    checks.load_cert_chain(server)
    shows.verify_mode = ssl.CERT_REQUIRED
    shows.load_verify_locations(trusted)
    ends = [
        shows.wrap_bio(here, there, server_side=True),
        checks.wrap_bio(there, here, server_hostname=name),
    ]
    for _ in range(4):
        for end in reversed(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ends[1].write(b"x")
    assert (ends[1].version(), ends[0].read(1)) == ("TLSv1.3", b"x")


def test_a_certificate_is_valid_for_its_names_and_its_authority_only(tmp_path: Path) -> None:
    pki, stranger = init(tmp_path, *NAMES), init(tmp_path / "stranger")

    assert pki.read_names() == NAMES
    for name in NAMES:
        shake_hands(pki.broker, pki.authority, name)
    with pytest.raises(ssl.SSLError, match=r"[Hh]ostname mismatch"):
        shake_hands(pki.broker, pki.authority, "broker2.example.net")
    with pytest.raises(ssl.SSLError, match="verify failed"):
        shake_hands(pki.broker, stranger.authority, NAMES[0])


@pytest.mark.parametrize("key", [b"", b"nonsense", None], ids=["empty", "nonsense", "another's"])
def test_an_authority_without_its_key_is_refused(tmp_path: Path, key: bytes | None) -> None:
    pki, other = init(tmp_path), init(tmp_path / "other")
    pki.authority_key.write_bytes(other.authority_key.read_bytes() if key is None else key)

    with pytest.raises(ConfigurationError, match="are not an authority"):
        pki.read_authority()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_follows_no_link_to_or_in_the_folder(tmp_path: Path) -> None:
    other, store, victim = init(tmp_path / "other"), tmp_path / "store", tmp_path / "victim"
    store.mkdir()
    victim.mkdir()
    (store / "tls").symlink_to(victim)
    os.chown(store, 12345, 12346)
    with pytest.raises(OperatorError, match="link"):
        init(store)
    assert list(victim.iterdir()) == []

    (store / "tls").unlink()
    pki = init(store)
    for path in (pki.authority, pki.authority_key):
        path.unlink()
        path.symlink_to(other.folder / path.name)
    with pytest.raises(OperatorError, match="symbolic link"):
        pki.read_authority()
