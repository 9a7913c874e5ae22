"""The output folder and the state folder of a partition: whether its files and its store match."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.text import format_count
from nats_logship.wire.subjects import partition_of
from receiver.storage.damage import Damaged, Misplaced
from receiver.storage.folders import make_synced_folder, walk_files
from receiver.storage.layout import DEFAULT, Layout
from receiver.storage.rotation import find_live_name
from receiver.storage.rows import StoredBatch, inode_of
from receiver.storage.store import Store, make_store_path


@dataclass(frozen=True, slots=True)
class PartitionFolders:
    """Where a partition is received to.

    `partitions` is the number of all partitions, 0 if not known. `broker` are the options with
    which a command asks this broker, quoted for a shell.
    """

    output: Path
    state: Path
    partition: int
    template: str = DEFAULT
    partitions: int = 0
    broker: str = ""

    def advise(self, error: Damaged) -> Damaged:
        """Return the same error with a command that works for these folders and this broker."""
        words = ["--output", str(self.output), "--state-dir", str(self.state)]
        if self.template != DEFAULT:
            words += ["--path-template", self.template]
        return error.with_options(shlex.join(words), self.broker)

    @property
    def store_path(self) -> Path:
        """The path of the store."""
        return make_store_path(self.state, self.partition)

    def is_home_of(self, host: str) -> bool:
        """Whether the lines of a host belong to this partition."""
        return not self.partitions or partition_of(host, self.partitions) == self.partition

    def read_last_batch(self, lines: int) -> StoredBatch | None:
        """Check all pages of the store, and return its last batch; else as `open_store`."""
        store = self.open_store(lines)
        if store is None:
            return None
        with store:
            store.check_pages()
            return store.read_batch()

    def open_store(self, lines: int) -> Store | None:
        """Open the store; None if nothing was received into these folders yet.

        `lines` is how many lines of the partition were received into any folders. Raises `Damaged`
        if store and files do not match, and OSError.
        """
        make_synced_folder(self.output)
        make_synced_folder(self.state)
        try:
            with ExitStack() as stack:
                store = stack.enter_context(Store(self.store_path))
                if batch := store.read_batch():
                    store.check_lengths()
                    self._check(store, batch)
                    stack.pop_all()
                    return store
        except FileNotFoundError:
            pass  # that's fine unless there are files
        if lines and (found := next(self.find_files(), None)):
            raise Misplaced(
                self.partition,
                f"{self.store_path} is gone, but {self.output} holds files of partition "
                f"{self.partition}, such as {found}: give the right --state-dir, or restore the "
                "store, if you have a copy",
            )
        return None

    def _check(self, store: Store, batch: StoredBatch) -> None:
        """Raise `Damaged` if the files have another path template, or are not in this folder."""
        if store.read_template() not in {"", self.template}:
            reason = _describe_other_template(store, self.template)
            raise Damaged(self.partition, reason, remedies=())
        if batch.output_inode in {0, inode_of(self.output.stat())}:
            return
        known = store.list_files_with_lines()
        if known and not any((self.output / row.path).is_file() for row in known):
            raise Misplaced(
                self.partition,
                f"none of the {format_count(len(known), 'file')} that {self.store_path} lists is "
                f"in {self.output}: is its disk mounted? Mount it, or give the right --output, "
                "unless the files are lost",
            )

    def find_files(self) -> Iterator[str]:
        """Yield the paths of this partition's files in the output folder; raises OSError.

        Live files and closed segments; by their names, so the store need not know them.
        """
        layout, others = Layout(self.template), self._list_files_of_others()
        for path in walk_files(self.output):
            live = find_live_name(path)
            host, mark, *_ = layout.parse(live)
            is_own = mark == f"..p{self.partition}" if mark else self.is_home_of(host)
            if host and is_own and live not in others:
                yield path

    def _list_files_of_others(self) -> set[str]:
        known: set[str] = set()
        for path in self.state.glob("p*.db"):
            if path != self.store_path:
                with suppress(OSError, Damaged), Store(path) as store:
                    known.update(row.path for row in store.list_files())
        return known


def require_template(state: Path, template: str) -> None:
    """Raise `ConfigurationError` if a store has files with another path template.

    A store that cannot be read is passed over; opening it for its lines reports that.
    """
    for path in sorted(state.glob("p*.db")):
        with suppress(OSError, Damaged), Store(path) as store:
            if store.read_template() not in {"", template}:
                raise ConfigurationError(_describe_other_template(store, template))


def _describe_other_template(store: Store, template: str) -> str:
    return (
        f"the files of {store.path} were written with --path-template {store.read_template()}, not "
        f"{template}: give the former, or another --output and --state-dir, which get only the "
        "lines from now on"
    )
