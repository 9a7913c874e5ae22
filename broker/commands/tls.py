"""`logbroker tls`: an authority of one's own, and the certificates that it signs."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address

import click

from broker.app.command_line import SectionedGroup
from broker.app.exits import OperatorError
from broker.app.files import reporting
from broker.auth.certificates import Pki, ends_of
from broker.commands.shared import LENGTH, now, option, store_of, with_settings
from broker.settings import STORE_FIELDS, BrokerSettings

_NAMES = option(
    *(
        "--name",
        "NAME",
        "By what clients reach the broker; several times; default: this machine's.",
    ),
    several="names",
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@click.group(cls=SectionedGroup)
def tls() -> None:
    """Make the certificates of a broker, signed by an authority of one's own.

    They are in DIR/tls. A broker that finds a certificate there talks TLS 1.3 and nothing else; one that
    runs takes new ones within some seconds, without a restart.
    """


@tls.command()
@_NAMES
@with_settings(STORE_FIELDS)
def init(settings: BrokerSettings, names: Sequence[str]) -> None:
    """Make a certificate for this broker, and the authority that signs it.

    For another broker of a cluster copy authority.pem and authority.key of the first into its DIR/tls before.
    """
    pki = _pki(settings)
    if pki.broker.exists():
        raise OperatorError(f"{pki.broker} is there already; `logbroker tls renew` makes a new one")
    wanted = _all_names(names)
    if pki.authority.exists() and pki.authority_key.exists():
        signer = pki.read_authority()
    else:
        signer = pki.found(f"logship authority of {socket.gethostname()}", now())
    pki.sign(signer, wanted, now())
    click.echo(f"TLS is on from the next start; the certificate is for {', '.join(wanted)}")
    click.echo(f"clients get {pki.authority} and name it with --tls-ca")


@tls.command()
@_NAMES
@option("--within", "TIME", "Only if it ends within that, or lacks a --name.", type=LENGTH)
@with_settings(STORE_FIELDS)
def renew(settings: BrokerSettings, names: Sequence[str], within: timedelta | None) -> None:
    """Sign this broker's certificate anew; one that runs takes it over by itself. New names replace those before."""
    pki = _pki(settings)
    present = pki.names()
    wanted = _all_names(names) if names else present
    (end,) = ends_of([pki.broker])
    is_due = within is None or end.not_after - now() < within
    if is_new := is_due or not set(names) <= set(present):
        pki.sign(pki.read_authority(), wanted, now())
        (end,) = ends_of([pki.broker])
    done = "signed anew" if is_new else "not renewed"
    click.echo(f"{done}: {end.path} is for {', '.join(pki.names())} until {end.not_after:%Y-%m-%d}")


def _pki(settings: BrokerSettings) -> Pki:
    pki = Pki(store_of(settings))
    with reporting(pki.folder), suppress(FileNotFoundError):  # not there: none was made yet
        next(pki.folder.iterdir(), None)
    return pki


def _all_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a certificate, this machine's own where none is given; raises click.UsageError."""
    own = names or (socket.getfqdn(), socket.gethostname())
    found = tuple(dict.fromkeys((*own, *_LOOPBACK)))
    for name in found:
        if not name or not name.isascii() or any(sign.isspace() or sign in "/:" for sign in name):
            try:
                ip_address(name)
            except ValueError:
                raise click.UsageError(
                    f"{name!r} is neither a host's name (in ASCII) nor an address"
                ) from None
    return found
