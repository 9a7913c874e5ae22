"""`logbroker credentials`: who gets in at a broker, in an operator's words. Changes the book, then tells the broker."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TextIO

import click

from broker.app.consent import YES, ask
from broker.app.durations import format_duration, parse_duration
from broker.app.exits import ConfigurationError, OperatorError
from broker.app.lazily import Listed
from broker.app.options import settings_options
from broker.commands.changing import Change, begin, now
from broker.commands.handing import handing_of, handing_options
from broker.commands.whom import Whom, whom
from broker.granting.book import Book, Entry, InvalidEntry, Key, account_name, named
from broker.granting.bookfile import load_book
from broker.granting.booktext import read_book
from broker.granting.carried import Carried
from broker.granting.identity import Certificate, Identity, Nkey
from broker.granting.issue import Issued, Sign, Way, issue
from broker.granting.partitions import partitions_of
from broker.looking.credentials import connected, rows, table
from broker.server.neighbour import read_ready
from broker.settings import BrokerSettings

__all__ = ["credentials"]

_FIELDS = frozenset({"store_dir", "server", "log_level", "log_format"})
_LOCAL = frozenset({"store_dir", "log_level", "log_format"})
_WAY = click.option(
    "--with",
    "way",
    type=click.Choice([way.value for way in Way]),
    help="What proves who it is; default: nkey, or what it was before.",
)


@click.group(cls=Listed)
def credentials() -> None:
    """Give hosts, receivers and admins the means to get in, and take them away again.

    They stand in DIR/credentials.json, without a secret. A broker that runs on DIR takes every change at once and
    disconnects nobody but whom it concerns. Before the first credential everybody on this machine gets in.
    """


@credentials.command()
@whom(everybody=False)
@_WAY
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="N",
    help="Of a receiver: its partitions, as 3 or 0,3,5, or all; default: the one that is its name.",
)
@click.option(
    "--subject",
    default="",
    metavar="NAME",
    help="The name in its certificate, --with certificate; default: its own.",
)
@handing_options
@settings_options(BrokerSettings, _FIELDS)
def add(
    whom: Whom, way: str | None, partitions: Sequence[str], subject: str, **options: Any
) -> None:
    """Give someone new a credential: `add host web01`, `add receiver 3`, `add admin`."""
    handing = handing_of(options)
    handing.check(len(whom.new))
    if subject and (len(whom.new) > 1 or way != Way.CERTIFICATE.value):
        raise click.UsageError("--subject is the name in one --with certificate")
    try:
        shares = [partitions_of(key, partitions) for key in whom.new]
    except InvalidEntry as error:
        raise click.UsageError(str(error)) from None
    change = Change.of(options, handing)
    sign = change.sign() if way == Way.CERTIFICATE.value else None

    def added(book: Book) -> tuple[Book, list[Carried]]:
        made = [issue(Way(way or "nkey"), key, subject, sign=sign) for key in whom.new]
        new = [
            Identity(key.kind, key.name, one.proof, share)
            for key, one, share in zip(whom.new, made, shares, strict=True)
        ]
        return book.added(new, now()), change.carried(new, made)

    before = change.make(added)
    if not before.secured:
        change.say(
            "from now on nobody gets in without a credential; who came without one is let go"
        )
    change.tell()


@credentials.command()
@whom(everybody=True)
@_WAY
@click.option(
    "--grace",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="How long the old secret is good as well; 0 ends it now.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="N",
    help="Of a receiver: other partitions, as 3 or 0,3,5, or all, at once and for the old secret as well.",
)
@handing_options
@settings_options(BrokerSettings, _FIELDS)
def rotate(
    whom: Whom, way: str | None, grace: str, partitions: Sequence[str], **options: Any
) -> None:
    """Make new secrets; the old ones stay good for --grace, so that nobody is cut off meanwhile."""
    lapse = _length(grace)
    try:
        share = partitions_of(Key(whom.kind, ""), partitions) if partitions else None
    except InvalidEntry as error:
        raise click.UsageError(str(error)) from None
    handing = handing_of(options)
    change = Change.of(options, handing)
    sign = change.sign()

    def rotated(book: Book) -> tuple[Book, list[Carried]]:
        keys = whom.among(book)
        handing.check(len(keys))
        entries = book.found(keys)
        made = [_renewed(entry, way, sign) for entry in entries]
        proofs = {key: one.proof for key, one in zip(keys, made, strict=True)}
        turned = book.rotated(proofs, now(), lapse, share)
        return turned, change.carried([entry.identity for entry in turned.found(keys)], made)

    change.make(rotated)
    left = f"is good for {format_duration(lapse)} more" if lapse else "gets nobody in any more"
    change.say(f"what was used before {left}")
    change.tell()


@credentials.command()
@whom(everybody=True)
@click.option(
    "--open-again",
    is_flag=True,
    help="With the last one: let in everybody on this machine without a credential again.",
)
@YES
@settings_options(BrokerSettings, _LOCAL)
def revoke(whom: Whom, open_again: bool, yes: bool, **options: Any) -> None:
    """Take credentials away; whoever uses one is disconnected at once, and nobody else."""
    change = Change.of(options)
    if not whom.names and not yes:
        ask(f"Take away the credential of every {whom.kind.value}?")
    if open_again and not yes:
        ask("Let in everybody on this machine without a credential?")

    def revoked(book: Book) -> tuple[Book, list[Carried]]:
        left = book.revoked(whom.among(book), now())
        return (left.opened() if open_again else left), []

    before = change.make(revoked)
    gone = len(before.entries) - len(change.book.entries)
    change.say(
        f"{gone} credential{'s' if gone > 1 else ''} taken away; {len(change.book.entries)} left"
    )
    if not change.book.entries:
        change.say(
            "everybody on this machine gets in without a credential"
            if open_again
            else "nobody gets in now; add a credential (or revoke with --open-again)"
        )
    change.tell()


@credentials.command(name="import")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--force", is_flag=True, help="Take it although it is not newer.")
@YES
@settings_options(BrokerSettings, _LOCAL)
def import_book(file: TextIO, force: bool, yes: bool, **options: Any) -> None:
    """Take over the credentials of another broker of a cluster: its credentials.json, or - for standard input.

    Each broker of a cluster has a book of its own; change one of them, and import that into the others.
    """
    change = Change.of(options)
    try:
        theirs = read_book(file.read())
    except ValueError as error:  # BookUnreadable, and what is not UTF-8
        raise ConfigurationError(f"{file.name} {error}") from None

    def taken(book: Book) -> tuple[Book, list[Carried]]:
        if force and theirs.secured >= book.secured:
            new = replace(theirs, revision=max(theirs.revision, book.revision + 1))
        else:
            new = book.succeeded_by(theirs)
        difference = book.compared(new)
        change.say(str(difference))
        if difference.gone and not yes:
            ask(f"Take away {named(difference.gone)}?")
        return new, []

    change.make(taken)
    change.tell()


@credentials.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
@settings_options(BrokerSettings, _LOCAL)
def list_all(as_json: bool, **options: Any) -> None:
    """Show who has a credential, since when, and how many connections use it."""
    folder, _ = begin(options)
    if not folder.is_dir():
        raise OperatorError(f"there is no folder {folder}; check --store-dir")
    book = load_book(folder)
    found = rows(book, now(), connected(read_ready(folder).get("http")))
    if as_json:
        click.echo(json.dumps({"secured": book.secured, "credentials": found}, indent=2))
    elif found:
        click.echo(table(found))
    else:
        click.echo(
            "nobody has a credential, and nobody gets in"
            if book.secured
            else "no credentials: everybody on this machine gets in"
        )


def _renewed(entry: Entry, way: str | None, sign: Sign | None) -> Issued:
    proof = entry.identity.proof
    if way is None:
        way = "nkey" if isinstance(proof, Nkey) else "password"
        if isinstance(proof, Certificate):
            way = "certificate"
    if way == "certificate" and isinstance(proof, Certificate) and sign is None:
        raise OperatorError(
            f"{entry.key} proves itself by a certificate, which is renewed by who signed it, with the same name"
        )
    taken = {account_name(proof) for proof in entry.proofs()}
    return issue(Way(way), entry.key, taken=taken, sign=sign)


def _length(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.UsageError(f"--grace: {error}") from None
