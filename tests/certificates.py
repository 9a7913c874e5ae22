"""Certificates for the tests of TLS, made for every session: committed ones would expire."""

from datetime import UTC, datetime
from pathlib import Path

from trustme import CA, LeafCert

HERE = ("127.0.0.1", "localhost")


def make_certificates(folder: Path) -> None:
    """Write `authority.pem`, `stranger.pem` (another authority), and four pairs `.pem`, `.key`.

    All are signed by the authority: `server` for this machine, `elsewhere` for another one,
    `expired` in 2001, `client` for a user.
    """
    authority = CA(organization_name="authority")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    CA(organization_name="stranger").cert_pem.write_to_path(folder / "stranger.pem")
    first, last = datetime(2000, 1, 1, tzinfo=UTC), datetime(2001, 1, 1, tzinfo=UTC)
    ends: dict[str, LeafCert] = {
        "server": authority.issue_cert(*HERE),
        "elsewhere": authority.issue_cert("broker.example.net"),
        "expired": authority.issue_cert(*HERE, not_before=first, not_after=last),
        "client": authority.issue_cert("web01@example.net"),
    }
    for name, end in ends.items():
        end.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        end.private_key_pem.write_to_path(folder / f"{name}.key")
        (folder / f"{name}.key").chmod(0o600)
