"""`logbroker console`: rates, hosts and lines in a browser. It only reads."""

import asyncio
import ssl
from pathlib import Path

import click

from broker.commands.shared import option, with_settings
from broker.settings import BrokerSettings
from nats_logship.app.address import parse_address
from nats_logship.app.command_line import SectionedCommand
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.program import warn_of_readable_secrets
from nats_logship.client.connection import Connection

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=SectionedCommand)
@option(
    "--listen", "ADDR:PORT", "Address for browsers.", default="127.0.0.1:8080", show_default=True
)
@option("--token-file", "FILE", "File with the token that browsers must send.", type=_FILE)
@option(
    "--listen-cert",
    "FILE",
    "Certificate of the console, with its key; then only https.",
    type=_FILE,
)
@option("--listen-key", "FILE", "Private key, if --listen-cert does not hold it.", type=_FILE)
@option(
    "--listen-ca",
    "FILE",
    "CA that signs the certificates of browsers that are accepted.",
    type=_FILE,
)
@with_settings()
def console(
    settings: BrokerSettings,
    listen: str,
    token_file: Path | None,
    listen_cert: Path | None,
    listen_key: Path | None,
    listen_ca: Path | None,
) -> None:
    """Show rates, silent hosts and their lines in a browser.

    An address that other machines reach needs --token-file or --listen-ca. Use a credential of
    `credentials add monitor`, which can only read.
    """
    from broker.console.server import Console, Listener
    from broker.server.nats_conf import read_secret

    try:
        address = parse_address(listen)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--listen") from None
    warn_of_readable_secrets(filter(None, (token_file, listen_cert, listen_key)))
    token = read_secret(token_file, "--token-file") if token_file else ""
    listener = Listener(address, token, _tls(listen_cert, listen_key, listen_ca))

    async def serve() -> None:
        connection = Connection(settings.server, "logbroker console", access=settings.access)
        try:
            await Console(connection, listener).run(lambda url: click.echo(f"open {url}"))
        finally:
            await connection.close()

    asyncio.run(serve())


def _tls(cert: Path | None, key: Path | None, ca: Path | None) -> ssl.SSLContext | None:
    if cert is None:
        if key or ca:
            raise click.UsageError("--listen-key and --listen-ca need --listen-cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
        if ca is not None:
            context.load_verify_locations(ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"cannot use the certificate of the console: {error}") from None
    return context
