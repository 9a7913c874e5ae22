"""`logbroker console`: rates, hosts and lines in a browser. It only reads."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel, ConfigDict, ValidationError

from broker.commands.shared import option, with_settings
from broker.settings import BrokerSettings
from nats_logship.app.address import Address, Listen
from nats_logship.app.command_line import SectionedCommand
from nats_logship.app.program import warn_of_readable_secrets
from nats_logship.app.tls_files import NamedFile, load_own, read_authorities
from nats_logship.client.connection import Connection

_FILE = click.Path(dir_okay=False, path_type=Path)


class _Options(BaseModel):
    """The options, from the command line or else from `[console]` of the --config file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    listen: Listen = Address("127.0.0.1", 8080)
    token_file: Path | None = None
    listen_cert: Path | None = None
    listen_key: Path | None = None
    listen_ca: Path | None = None
    table: str = ""


@click.command(cls=SectionedCommand)
@option("--listen", "ADDR:PORT", "Address for browsers.  [default: 127.0.0.1:8080]")
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
@option(
    "--table",
    "DIR|URL",
    "Table of `logreceiver table`, for lines that are older than the stream.",
)
@with_settings()
def console(settings: BrokerSettings, **options: Any) -> None:
    """Show rates, silent hosts and their lines in a browser.

    An address that other machines reach needs --token-file or --listen-ca. Use a credential of
    `credentials add monitor`, which can only read. The --config file takes the options in a table
    `[console]`.
    """
    from broker.console.server import Console, Listener
    from broker.server.nats_conf import read_secret
    from nats_logship.table_files import require_libraries

    given = {name: value for name, value in options.items() if value is not None}
    try:
        chosen = _Options.model_validate(settings.console | given)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first.get("ctx", {}).get("error", first["msg"])
        raise click.UsageError(f"{first['loc'][0]} of the console: {reason}") from None
    token, cert, key = chosen.token_file, chosen.listen_cert, chosen.listen_key
    warn_of_readable_secrets(filter(None, (token, cert, key)))
    secret = read_secret(token, "--token-file") if token else ""
    listener = Listener(chosen.listen, secret, _tls(cert, key, chosen.listen_ca))
    if chosen.table:
        require_libraries()

    async def serve() -> None:
        connection = Connection(settings.server, "logbroker console", access=settings.access)
        try:
            await Console(connection, listener, chosen.table).run(
                lambda url: click.echo(f"open {url}")
            )
        finally:
            await connection.close()

    asyncio.run(serve())


def _tls(cert: Path | None, key: Path | None, ca: Path | None) -> ssl.SSLContext | None:
    if cert is None:
        if key or ca:
            raise click.UsageError("--listen-key and --listen-ca need --listen-cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_own(context, NamedFile(cert, "--listen-cert"), NamedFile(key or cert, "--listen-key"))
    if ca is not None:
        context.load_verify_locations(cadata=read_authorities(NamedFile(ca, "--listen-ca")))
        context.verify_mode = ssl.CERT_REQUIRED
    return context
