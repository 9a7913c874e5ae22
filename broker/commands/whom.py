"""Whom a command on credentials is about: a kind, and names given as words, in a file, or all there are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from broker.granting.book import Book, Key
from broker.granting.identity import Kind

__all__ = ["Whom", "whom"]

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Whom:
    """A kind, and the names said; none for everybody of the kind who has a credential."""

    kind: Kind
    names: tuple[str, ...]

    @property
    def new(self) -> list[Key]:
        """What new credentials go by; a lone admin needs no name."""
        return [Key(self.kind, name) for name in self.names]

    def among(self, book: Book) -> list[Key]:
        """Return what existing credentials go by."""
        if self.names:
            return self.new
        return [entry.key for entry in book.entries if entry.key.kind is self.kind]


def whom(*, everybody: bool) -> Callable[[Command], Command]:
    """Return a decorator that adds the words for it, and `--all` where `everybody` may be meant; gives `whom`."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def called(
            kind: str,
            names: Sequence[str],
            listed: Iterable[str] | None,
            everyone: bool = False,
            **options: Any,
        ) -> None:
            command(whom=_whom(Kind(kind), names, listed, everyone=everyone), **options)

        decorated: Command = called
        if everybody:
            decorated = click.option("--all", "everyone", is_flag=True, help="All of this kind.")(
                decorated
            )
        decorated = click.option(
            "--from",
            "listed",
            type=click.File("r", encoding="utf-8"),
            metavar="FILE",
            help="File of names, one a line, for thousands at once; - is standard input.",
        )(decorated)
        decorated = click.argument("names", nargs=-1, metavar="[NAME]...")(decorated)
        return click.argument("kind", type=click.Choice([kind.value for kind in Kind]))(decorated)

    return decorate


def _whom(
    kind: Kind, names: Sequence[str], listed: Iterable[str] | None, *, everyone: bool
) -> Whom:
    lines = (line.partition("#")[0].strip() for line in listed or ())
    said = (*names, *filter(None, lines))
    if everyone:
        if said:
            raise click.UsageError("--all and names are two ways to say whom; give one of them")
        return Whom(kind, ())
    if not said and kind is Kind.ADMIN and listed is None:
        return Whom(kind, (kind.value,))
    if not said:
        raise click.UsageError(f"say which {kind.value}: a name, several, or --from FILE")
    return Whom(kind, said)
