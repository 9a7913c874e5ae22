"""One change of the credential store: whom it concerns, where new secrets go, and what the running broker makes of it."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from broker.app.exits import OperatorError
from broker.app.files import make_folder
from broker.auth.certificates import Pki
from broker.auth.credential_file import CredentialFile, remove_files, write_files
from broker.auth.store import EMPTY, CredentialKind, CredentialStore, Holder, InvalidStore
from broker.auth.store_file import held_credentials
from broker.client.nkey import new_seed, user_key
from broker.commands.shared import store_of
from broker.server.state_file import Taken, await_credentials, read_state
from broker.server.tls import TLS_FOLDER
from broker.settings import BrokerSettings

__all__ = ["NAMES", "OUTPUT", "CredentialChange", "Seeds", "holders_of", "new_keys"]

Seeds = dict[Holder, str]
"""The secrets of a change, by who is to have them."""

_FEW = 10
_PATIENCE = 60.0  # seconds that a running broker may take to read thousands of credentials
_STDOUT = "-"


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


NAMES = _options(
    click.argument("kind", type=click.Choice([kind.value for kind in CredentialKind])),
    click.argument("names", nargs=-1, metavar="[NAME]..."),
    click.option(
        "--from",
        "listed",
        type=click.File("r", encoding="utf-8"),
        metavar="FILE",
        help="File of names, one a line, for thousands at once; - is standard input.",
    ),
)
"""The arguments that say whom a command concerns, which `holders_of` reads."""

OUTPUT = _options(
    click.option(
        "--output",
        default="",
        metavar="FILE",
        help="Where the secret goes: a file, a directory for several, - for standard output; default: KIND-NAME.toml here.",
    ),
    click.option("--force", is_flag=True, help="Replace files that are there."),
)
"""The options that say where new secrets go."""


def holders_of(
    kind: str, names: Sequence[str], listed: Iterable[str] | None, *, everybody: bool = False
) -> list[Holder]:
    """Return whom a command concerns, none where `everybody` of the kind is meant; raises click.UsageError."""
    lines = (line.partition("#")[0].strip() for line in listed or ())
    named = (*names, *filter(None, lines))
    if everybody and named:
        raise click.UsageError("--all and names are two ways to say whom; give one of them")
    if not named and not everybody and kind == CredentialKind.ADMIN.value and listed is None:
        named = (kind,)  # a lone admin needs no name
    if not named and not everybody:
        raise click.UsageError(f"say which {kind}: a name, several, or --from FILE")
    return [Holder(CredentialKind(kind), name) for name in named]


def new_keys(holders: Sequence[Holder]) -> tuple[Seeds, dict[Holder, str]]:
    """Return a new secret of each, and its public key, which alone is stored."""
    seeds = {holder: new_seed() for holder in holders}
    return seeds, {holder: user_key(seed).public for holder, seed in seeds.items()}


@dataclass(slots=True)
class CredentialChange:
    """A change of the credential store of a broker; `after` is what came of it.

    New secrets go to `output`: a file, a directory, `-` for standard output, or files here where it is empty.
    """

    settings: BrokerSettings
    output: str = ""
    force: bool = False
    after: CredentialStore = EMPTY

    @property
    def folder(self) -> Path:
        """The broker's directory."""
        return store_of(self.settings)

    def check_output(self, number: int) -> None:
        """Raise click.UsageError where so many secrets cannot go to the output."""
        if self.output == _STDOUT and number > 1:
            raise click.UsageError(
                "standard output takes one credential; --output DIR/ takes several"
            )

    def say(self, words: str) -> None:
        """Print a message, where the secret is not."""
        click.echo(words, err=self.output == _STDOUT)

    def make(
        self, decide: Callable[[CredentialStore], tuple[CredentialStore, Seeds]]
    ) -> CredentialStore:
        """Write the credential files, then the changed store; returns the store as it was. Raises `OperatorError`.

        If we die in between, a file is there that lets nobody in, and the same command with --force makes it good.
        """
        with held_credentials(self.folder) as held:
            before = held.store
            try:
                self.after, seeds = decide(before)
            except InvalidStore as error:
                raise OperatorError(f"{error}; `logbroker credentials list` shows all") from None
            files = self._files(seeds)
            paths = self._write(files) if files else []
            try:
                held.write(self.after)
            except OperatorError:
                remove_files(paths)
                raise
        self._say_written(files, paths)
        return before

    def _files(self, seeds: Seeds) -> list[CredentialFile]:
        pki = Pki(self.folder / TLS_FOLDER)
        has_own = pki.is_there and pki.authority.exists()
        authority = pki.read_certificate().decode("ascii") if has_own else ""
        servers = self._servers()
        return [
            CredentialFile(one, seeds[one.holder], servers, authority)
            for one in self.after.found(list(seeds))
        ]

    def _servers(self) -> Sequence[str]:
        if "server" in self.settings.model_fields_set:
            return self.settings.server
        running = read_state(self.folder).get("server")
        return (running,) if isinstance(running, str) else self.settings.server

    def _write(self, files: Sequence[CredentialFile]) -> list[Path]:
        """Write the credential files and return their paths; raises `OperatorError`, and then there are none."""
        if self.output == _STDOUT:
            for one in files:
                click.echo(one.as_toml("FILE"), nl=False)
            sys.stdout.flush()  # whoever reads it may be gone: then nothing is changed
            return []
        folder, name = Path(self.output), ""
        if (
            self.output
            and len(files) == 1
            and not self.output.endswith("/")
            and not folder.is_dir()
        ):
            folder, name = folder.parent, folder.name
        try:
            make_folder(folder, 0o700).close()
        except OSError as error:
            raise OperatorError(
                f"cannot make the directory {folder}: {error.strerror}; check --output"
            ) from None
        texts = {folder / (name or one.name): one.as_toml(name or one.name) for one in files}
        write_files(texts, force=self.force)
        return list(texts)

    def _say_written(self, files: Sequence[CredentialFile], paths: Sequence[Path]) -> None:
        if len(paths) > _FEW:
            self.say(f"{len(paths)} credentials are in {paths[0].parent}/, a file each")
        else:
            for one, path in zip(files, paths, strict=False):
                self.say(
                    f"{one.credential.holder}: its credential is {path}; "
                    f"carry it there, then {one.hint(path.name)}"
                )
        if files and all(map(_is_local, files[0].servers)):
            self.say(
                f"it names {', '.join(files[0].servers)}, which is this machine alone; "
                "--server says where others reach the broker"
            )

    def tell(self) -> None:
        """Have a running broker take the change; raises `OperatorError` when it does not."""
        taking = await_credentials(self.folder, self.after.revision, _PATIENCE)
        match taking.taken:
            case Taken.DONE:
                self.say("the broker has taken the change")
            case Taken.NEXT_START:
                self.say(
                    f"no broker runs on {self.folder}; the change is in force from the next start"
                )
            case Taken.WHEN_READY:
                self.say(
                    f"the broker of {self.folder} is not ready yet (it may wait for its cluster, see its log); "
                    "the change is stored and is in force as soon as it is, or from its next start"
                )
            case Taken.REFUSED:
                raise OperatorError(
                    f"the change is stored, but the broker keeps the current credentials: {taking.reason}"
                )
            case Taken.UNKNOWN:
                raise OperatorError(
                    f"the change is stored, but the broker has not taken it within {_PATIENCE:g} s; see its log"
                )


def _is_local(server: str) -> bool:
    host = server.rpartition("://")[2].rpartition(":")[0].strip("[]")
    return host.startswith("127.") or host in {"localhost", "::1"}
