"""`logbroker credentials`: who gets in at a broker; changes the credential store, then has a running broker take it.

`logbroker tls`: an authority of one's own, and the certificates that it signs.
"""

import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import click

from broker.auth.certificates import Pki, read_expiries
from broker.auth.credentials import CredentialKind, CredentialStore, Holder, InvalidStore
from broker.auth.files import CredentialFile, change_credentials
from broker.commands.shared import (
    JSON,
    LENGTH,
    asking,
    now,
    option,
    partition_list,
    print_json,
    show,
    store_of,
    with_settings,
)
from broker.inspect.ask import credentials_at
from broker.report import CredentialsReport
from broker.server.requests import report_credentials
from broker.server.store import has_run, read_state, wait_for_credentials
from broker.settings import STATUS_FIELDS, STORE_FIELDS, BrokerSettings
from nats_logship.app.command_line import SectionedGroup
from nats_logship.app.exits import OperatorError
from nats_logship.app.files import report_errors, write_atomic
from nats_logship.app.text import format_names, printable
from nats_logship.client.nkey import new_seed, user_key

_STDOUT = "-"
_KIND = click.argument("kind", type=click.Choice([kind.value for kind in CredentialKind]))
_NAMES = click.argument("names", nargs=-1, metavar="[NAME]...")


@click.group(cls=SectionedGroup)
def credentials() -> None:
    """Give hosts, receivers, admins and monitors credentials, and revoke them.

    The credential store is DIR/credentials.json; it holds no secret. A broker that runs on DIR takes every change at
    once and disconnects nobody but whom it concerns. Before the first credential everybody on this machine gets in.
    """


@credentials.command()
@_KIND
@_NAMES
@option(
    "--partition",
    "N",
    "Of a receiver: its partitions, as 3 or 0,3,5, or all; default: its name.",
    several="partitions",
    callback=partition_list,
)
@option(
    "--output",
    "FILE",
    "File of the secret, a directory, or - for standard output; default: KIND-NAME.toml here.",
    default="",
)
@click.option("--force", is_flag=True, help="Replace credentials and files that are there.")
@JSON
@with_settings(STORE_FIELDS | {"server"})
def add(
    settings: BrokerSettings,
    kind: str,
    names: Sequence[str],
    partitions: tuple[int, ...] | None,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Give a credential: `add host web01`, `add receiver 3`, `add admin`, `add monitor grafana`.

    With --force whoever has one gets a new one in its place, and the old secret gets nobody in any more.
    """
    if output == _STDOUT and (as_json or len(set(names)) > 1):
        raise click.UsageError(
            "standard output takes one credential and nothing else; --output DIR/ takes several"
        )
    holders = _holders(kind, names, partitions)
    seeds = {holder: new_seed() for holder in holders}
    new = [(one, user_key(seeds[one]).public, _share(one, partitions)) for one in holders]
    written: dict[Path, CredentialFile] = {}

    def added(store: CredentialStore) -> CredentialStore:
        known = [one.holder for one in store.credentials if force and one.holder in seeds]
        left = store.revoke(known) if known else store
        after = left.add(new, now().replace(microsecond=0))
        written.update(_write(_files(settings, after, seeds), output, force=force))
        return after

    to_stderr = as_json or output == _STDOUT
    after = _change(settings, added, err=to_stderr)
    for path, one in written.items():
        words = f"{one.credential.holder}: its credential is {path}; carry it to its program, which takes it by {one.option}"
        click.echo(words, err=to_stderr)
    if as_json:
        made = [one.model_dump(mode="json") for one in after.find(holders)]
        print_json({"credentials": made, "files": list(map(str, written))})


@credentials.command()
@_KIND
@_NAMES
@JSON
@with_settings(STORE_FIELDS | STATUS_FIELDS)
def revoke(settings: BrokerSettings, kind: str, names: Sequence[str], as_json: bool) -> None:
    """Revoke credentials; whoever uses one is disconnected at once, and nobody else.

    In --store-dir on the broker's machine; without it at all servers of the broker that --server names, as an admin.
    """
    holders = _holders(kind, names)
    if settings.store_dir is None:
        asked = [(holder.kind.value, holder.name) for holder in holders]
        reports = asking(settings, "credentials revoke", lambda c: credentials_at(c, asked))
    else:
        _change(settings, lambda store: store.revoke(holders), err=as_json)
        reports = [report_credentials(store_of(settings), str(settings.store_dir))]
    for one in reports:
        left = len(one.credentials)
        done = f"{format_names(holders)} revoked; {left or 'nobody gets in now: none is'} left"
        click.echo(printable(f"{one.name}: {one.error or done}"), err=as_json)
    if as_json:
        print_json([one.model_dump(mode="json") for one in reports])
    if any(one.error for one in reports):
        raise OperatorError(
            "not revoked everywhere, see above; `logbroker credentials list` shows all"
        )


@credentials.command(name="list")
@JSON
@with_settings(STORE_FIELDS | STATUS_FIELDS)
def list_all(settings: BrokerSettings, as_json: bool) -> None:
    """Show who has a credential, and since when.

    Of --store-dir on the broker's machine; without it of the broker that --server names, as an admin.
    """
    if settings.store_dir is None:
        found = _merged(asking(settings, "credentials list", credentials_at))
    else:
        folder = store_of(settings)
        found = report_credentials(_existing(folder, "--store-dir"))
    lines = []
    for row in found.credentials:
        own = ", ".join(map(str, row["partitions"])) or "all"
        share = f" of partitions {own}" if row["kind"] == CredentialKind.RECEIVER.value else ""
        lines.append(f"{row['kind']} {row['name']}{share}, since {row['since'][:16]}Z")
    if not found.secured:
        lines.append("everybody on this machine gets in without a credential")
    show(found.model_dump(include={"secured", "credentials"}), *lines, as_json=as_json)


def _merged(reports: Sequence[CredentialsReport]) -> CredentialsReport:
    """Return the credentials that any server of a cluster knows; says where their stores differ."""
    for silent in (one for one in reports if one.error):
        click.echo(f"note: {printable(f'{silent.name}: {silent.error}')}", err=True)
    reports = [one for one in reports if not one.error]
    if not reports:
        raise OperatorError("no broker tells of its credentials, see above")
    found = {(row["kind"], row["name"]): row for one in reports for row in one.credentials}
    keys = [{row["nkey"] for row in report.credentials} for report in reports]
    if any(one != keys[0] for one in keys):
        names = ", ".join(report.name for report in reports)
        click.echo(
            f"note: credentials differ among {names}; copy credentials.json of one to the others",
            err=True,
        )
    secured = all(report.secured for report in reports)
    return CredentialsReport(name="", secured=secured, credentials=list(found.values()))


def _holders(
    kind: str, names: Sequence[str], partitions: tuple[int, ...] | None = None
) -> list[Holder]:
    """Return whom a command concerns; raises click.UsageError also for what does not go together."""
    if not names and kind == CredentialKind.ADMIN.value:
        names = (kind,)  # a lone admin needs no name
    if not names:
        raise click.UsageError(f"say which {kind}: a name, or several")
    if partitions is not None and kind != CredentialKind.RECEIVER.value:
        raise click.UsageError(f"--partition is for receivers; a {kind} has none")
    return [Holder(CredentialKind(kind), name) for name in dict.fromkeys(names)]


def _share(holder: Holder, partitions: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the partitions of a new receiver, none for all of them and for what is no receiver."""
    if holder.kind is not CredentialKind.RECEIVER or partitions is not None or holder.name == "all":
        return partitions or ()
    if not (holder.name.isascii() and holder.name.isdigit()):
        raise click.UsageError(
            f"say which partitions {holder} gets: --partition 3, --partition 0,3,5 or --partition all"
        )
    return (int(holder.name),)


def _change(
    settings: BrokerSettings, decide: Callable[[CredentialStore], CredentialStore], *, err: bool
) -> CredentialStore:
    """Change the store of a directory that is there, have a running broker take it, and return it.

    Raises `OperatorError`.

    Credential files are written before the store: if we die or fail in between, files are there that let nobody in, and the
    same command with --force makes them good.
    """
    folder = _existing(store_of(settings), "--store-dir, or make it where a broker is to begin")
    try:
        before, after = change_credentials(folder, decide)
    except InvalidStore as error:
        raise OperatorError(f"{error}; `logbroker credentials list` shows all") from None
    click.echo(wait_for_credentials(folder, after.revision), err=err)
    if not before.is_secured and not has_run(folder):
        click.echo(f"no broker has run in {folder} so far; check --store-dir", err=True)
    if not before.is_secured:
        click.echo(
            "from now on nobody gets in without a credential; clients that came without one are disconnected",
            err=err,
        )
    return after


def _existing(folder: Path, place: str) -> Path:
    """Return a directory that is there; raises `OperatorError`, with the place to check."""
    with report_errors(folder, "open the directory"):
        is_there = folder.is_dir()
    if not is_there:
        raise OperatorError(f"there is no directory {folder}; check {place}")
    return folder


def _files(
    settings: BrokerSettings, after: CredentialStore, seeds: Mapping[Holder, str]
) -> list[CredentialFile]:
    """Return the credential files of new secrets: with the address of the broker, and its own authority where it has one."""
    folder = store_of(settings)
    pki = Pki(folder)
    has_own = pki.broker.exists() and pki.authority.exists()
    authority = pki.read(pki.authority).decode("ascii") if has_own else ""
    running = read_state(folder).get("server")
    is_told = "server" in settings.model_fields_set or not isinstance(running, str)
    servers = settings.server if is_told else (str(running),)
    of_new = after.find(list(seeds))
    return [CredentialFile(one, seeds[one.holder], servers, authority) for one in of_new]


def _write(
    files: Sequence[CredentialFile], output: str, *, force: bool
) -> dict[Path, CredentialFile]:
    """Write the credential files, and return them by path; raises `OperatorError`."""
    if output == _STDOUT:
        click.echo(files[0].as_toml("FILE"), nl=False)
        sys.stdout.flush()  # whoever reads it may be gone: then nothing is changed
        return {}
    folder, name = Path(output), ""
    is_file = output and len(files) == 1 and not output.endswith("/")
    if is_file and not folder.is_dir():
        folder, name = folder.parent, folder.name
    _existing(folder, "--output, or make it")
    found = {folder / (name or one.name): one for one in files}
    if not force and (there := [path for path in found if os.path.lexists(path)]):
        raise OperatorError(
            f"{there[0]} is there already; --force replaces it, --output names another file"
        )
    for path, one in found.items():
        write_atomic(path, one.as_toml(path.name), 0o600)
    return found


_CERTIFIED = option(
    "--name",
    "NAME",
    "By what clients reach the broker; several times; default: this machine's.",
    several="names",
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NAMED = re.compile(r"[A-Za-z0-9._*-]+|[0-9A-Fa-f.:]+")


@click.group(cls=SectionedGroup)
def tls() -> None:
    """Make the certificates of a broker, signed by an authority of one's own.

    They are in DIR/tls. A broker that finds a certificate there talks TLS 1.3 and nothing else; one that
    runs takes new ones within some seconds, without a restart.
    """


@tls.command()
@_CERTIFIED
@JSON
@with_settings(STORE_FIELDS)
def init(settings: BrokerSettings, names: Sequence[str], as_json: bool) -> None:
    """Make a certificate for this broker, and the authority that signs it.

    For another broker of a cluster copy authority.pem and authority.key of the first into its DIR/tls before.
    """
    pki = _pki(settings)
    if pki.broker.exists():
        raise OperatorError(f"{pki.broker} is there already; `logbroker tls renew` makes a new one")
    wanted = _all_names(names)
    if pki.authority.exists() or pki.authority_key.exists():
        signer = pki.read_authority()
    else:
        signer = pki.create_authority(f"logship authority of {socket.gethostname()}", now())
    pki.sign(signer, wanted, now())
    click.echo(f"clients get {pki.authority} and name it with --tls-ca", err=as_json)
    _tell("TLS is on from the next start", pki, as_json=as_json)


@tls.command()
@_CERTIFIED
@option("--within", "DURATION", "Only if it ends within that, or lacks a --name.", type=LENGTH)
@JSON
@with_settings(STORE_FIELDS)
def renew(
    settings: BrokerSettings, names: Sequence[str], within: timedelta | None, as_json: bool
) -> None:
    """Sign this broker's certificate anew; one that runs takes it over by itself. New names replace those before."""
    pki = _pki(settings)
    present = pki.read_names()
    wanted = _all_names(names) if names else present
    (end,) = read_expiries([pki.broker])
    is_due = within is None or end.not_after - now() < within
    if is_new := is_due or not set(names) <= set(present):
        pki.sign(pki.read_authority(), wanted, now())
    _tell("signed anew" if is_new else "not renewed", pki, as_json=as_json)


def _tell(done: str, pki: Pki, *, as_json: bool) -> None:
    names, (end,) = pki.read_names(), read_expiries([pki.broker])
    document = {"done": done, "names": names, **end.model_dump(mode="json")}
    text = f"{done}: {end.path} is for {', '.join(names)} until {end.not_after:%Y-%m-%d}"
    show(document, text, as_json=as_json)


def _pki(settings: BrokerSettings) -> Pki:
    pki = Pki(store_of(settings))
    with report_errors(pki.folder), suppress(FileNotFoundError):  # not there: none was made yet
        next(pki.folder.iterdir(), None)
    return pki


def _all_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a certificate, this machine's own where none is given; raises click.UsageError."""
    own = names or (socket.getfqdn(), socket.gethostname())
    found = tuple(dict.fromkeys((*own, *_LOOPBACK)))
    for name in found:
        if not _NAMED.fullmatch(name):
            raise click.UsageError(f"{name!r} is neither a host's name (in ASCII) nor an address")
    return found
