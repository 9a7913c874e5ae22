"""`logbroker tls`: an authority of one's own, and the certificates that it signs."""

import socket
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import click

from broker.app.command_line import PlainGroup
from broker.app.exits import OperatorError
from broker.auth.certificates import Pki, ends_of, read_authority
from broker.commands.shared import LENGTH, store_of, this_second, with_settings
from broker.server.tls import TLS_FOLDER
from broker.settings import BrokerSettings

__all__ = ["tls"]

_FIELDS = frozenset({"store_dir", "log_level", "log_format"})
_AUTHORITY_KEY = click.option(
    "--authority-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Key of the authority, where it is not kept in DIR/tls; it is used and not kept here.",
)
_ELSEWHERE = click.option(
    "--elsewhere",
    is_flag=True,
    help="For a broker on another machine: this one's own names are left out.",
)
_HERE = ("localhost", "127.0.0.1", "::1")


@click.group(cls=PlainGroup)
def tls() -> None:
    """Make the certificates of a broker, signed by an authority of one's own.

    They are in DIR/tls. A broker that finds a certificate there talks TLS 1.3 and nothing else; one that
    runs takes new ones within some seconds, without a restart.
    """


@tls.command()
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name or address by which clients reach this broker; this machine's own are added.",
)
@click.option(
    "--authority",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Authority that another broker made (its DIR/tls/authority.pem), for a cluster.",
)
@_AUTHORITY_KEY
@_ELSEWHERE
@with_settings(_FIELDS)
def init(
    settings: BrokerSettings,
    names: Sequence[str],
    authority: Path | None,
    authority_key: Path | None,
    elsewhere: bool,
) -> None:
    """Make an authority (or take --authority), and a certificate for this broker."""
    pki = _pki(settings)
    if pki.is_there:
        raise OperatorError(f"{pki.broker} is there already; `logbroker tls renew` makes a new one")
    if elsewhere and not names:
        raise click.UsageError("--elsewhere goes with --name: how clients reach that broker")
    wanted = _all_names(names, elsewhere=elsewhere)
    today = this_second()
    if authority and authority_key:
        signer = read_authority(authority, authority_key)
        pki.adopt(signer)
    elif authority or authority_key:
        raise click.UsageError("--authority and --authority-key come together")
    elif pki.authority.exists() and pki.authority_key.exists():
        signer = pki.read_authority()  # made by an init that came no further
    else:
        signer = pki.found(f"logship authority of {socket.gethostname()}", today)
    pki.sign(signer, wanted, today)
    click.echo(f"TLS is on from the next start; the certificate is for {', '.join(wanted)}")
    click.echo(f"clients get {pki.authority} and name it with --tls-ca")


@tls.command()
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="New names in place of those before."
)
@_AUTHORITY_KEY
@_ELSEWHERE
@click.option(
    "--within",
    metavar="TIME",
    type=LENGTH,
    help="Only where the certificate ends within that time, or lacks a --name.",
)
@with_settings(_FIELDS)
def renew(
    settings: BrokerSettings,
    names: Sequence[str],
    authority_key: Path | None,
    elsewhere: bool,
    within: timedelta | None,
) -> None:
    """Sign this broker's certificate anew; one that runs takes it over by itself."""
    pki = _pki(settings)
    present = pki.names()
    wanted = _all_names(names, elsewhere=elsewhere) if names else present
    (end,) = ends_of([pki.broker])
    is_due = within is None or end.not_after - this_second() < within
    if is_new := is_due or not set(names) <= set(present):
        pki.sign(pki.read_authority(authority_key), wanted, this_second())
        (end,) = ends_of([pki.broker])
    done = "signed anew" if is_new else "not renewed"
    click.echo(f"{done}: {end.path} is for {', '.join(end.names)} until {end.not_after:%Y-%m-%d}")


def _pki(settings: BrokerSettings) -> Pki:
    pki = Pki(store_of(settings) / TLS_FOLDER)
    try:
        next(pki.folder.iterdir(), None)
    except FileNotFoundError:
        pass  # that's fine: none was made yet
    except OSError as error:
        raise OperatorError(
            f"cannot read {pki.folder}: {error.strerror}; run this as the broker's user, or check --store-dir"
        ) from None
    return pki


def _all_names(names: Sequence[str], *, elsewhere: bool) -> tuple[str, ...]:
    """Return the names of a certificate, with this machine's own unless it is for another; raises click.UsageError."""
    own = () if elsewhere else (socket.getfqdn(), socket.gethostname())
    found = tuple(dict.fromkeys((*names, *own, *_HERE)))
    for name in found:
        if not name or not name.isascii() or any(sign.isspace() or sign in "/:" for sign in name):
            try:
                ip_address(name)
            except ValueError:
                raise click.UsageError(
                    f"{name!r} is neither a host's name (in ASCII) nor an address"
                ) from None
    return found
