"""What an authority signs is what real TLS accepts, for the names it is for, and for no longer than the authority lasts."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.auth.certificates import Authority, UnusableAuthority, names_in

NOW = datetime.now(UTC)  # noqa: TID251 - what OpenSSL goes by
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.found("ours", NOW, 10 * DAY)


def shake_hands(
    tmp_path: Path, server: bytes, trusted: bytes, name: str, client: bytes | None = None
) -> None:
    """Both ends of TLS in memory; raises ssl.SSLError as they would."""
    (tmp_path / "server.pem").write_bytes(server)
    (tmp_path / "trusted.pem").write_bytes(trusted)
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    shows = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shows.load_cert_chain(tmp_path / "server.pem")
    checks = ssl.create_default_context(cafile=str(tmp_path / "trusted.pem"))
    if client is not None:
        (tmp_path / "client.pem").write_bytes(client)
        checks.load_cert_chain(tmp_path / "client.pem")
        shows.verify_mode = ssl.CERT_REQUIRED
        shows.load_verify_locations(tmp_path / "trusted.pem")
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
    assert ends[1].version() == "TLSv1.3"
    ends[1].write(b"x")
    assert ends[0].read(1) == b"x"


@pytest.mark.parametrize("name", ["broker1.example.net", "127.0.0.1", "::1", "localhost"])
def test_a_brokers_certificate_holds_for_each_of_its_names_and_both_ends_of_a_route(
    authority: Authority, tmp_path: Path, name: str
) -> None:
    names = ["broker1.example.net", "127.0.0.1", "::1", "localhost"]
    issued = authority.issue(names, NOW, DAY)
    pair = issued.certificate + issued.key

    assert names_in(issued.certificate) == tuple(names)
    trusted = authority.as_issued().certificate
    shake_hands(tmp_path, pair, trusted, name, pair)


def test_it_does_not_hold_for_another_name_nor_under_another_authority(
    authority: Authority, tmp_path: Path
) -> None:
    issued = authority.issue(["broker1.example.net"], NOW, DAY)
    pair = issued.certificate + issued.key
    stranger = Authority.found("theirs", NOW, DAY)

    with pytest.raises(ssl.SSLError, match=r"[Hh]ostname mismatch"):
        shake_hands(tmp_path, pair, authority.as_issued().certificate, "broker2.example.net")
    with pytest.raises(ssl.SSLError, match="verify failed"):
        shake_hands(tmp_path, pair, stranger.as_issued().certificate, "broker1.example.net")


def test_an_authority_is_read_back_and_anything_else_refused(authority: Authority) -> None:
    own, other = authority.as_issued(), Authority.found("theirs", NOW, DAY).as_issued()

    assert Authority.read(own.certificate, own.key).certificate == authority.certificate
    for certificate, key in [
        (b"", own.key),
        (own.certificate, b""),
        (own.certificate, b"nonsense"),
        (own.certificate, other.key),
    ]:
        with pytest.raises(UnusableAuthority):
            Authority.read(certificate, key)
