"""The two folders of a partition on this machine, and whether the store and the files in them belong together."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from broker.wire.subjects import partition_of
from receiver.storage.folders import make_folder, walk
from receiver.storage.layout import DEFAULT, Layout
from receiver.storage.position import Batch, Damaged
from receiver.storage.rotation import live_of
from receiver.storage.store import Store, path_of

__all__ = ["Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a partition is received to. `partitions` is how many there are, 0 where that is not known."""

    output: Path
    state: Path
    partition: int
    template: str = DEFAULT
    partitions: int = 0

    @property
    def path(self) -> Path:
        """Where the store is."""
        return path_of(self.state, self.partition)

    def is_home_of(self, host: str) -> bool:
        """Whether the lines of a host belong to this partition."""
        return not self.partitions or partition_of(host, self.partitions) == self.partition

    def last_batch(self, lines: int) -> Batch | None:
        """Return the batch that was stored last; raises and returns None as `open` does."""
        store = self.open(lines)
        if store is None:
            return None
        with store:
            return store.batch()

    def open(self, lines: int) -> Store | None:
        """Open the store, or return None where nothing was received to here yet; `lines` were received anywhere.

        Raises `Damaged` where store and files do not belong together, and OSError.
        """
        make_folder(self.output)
        make_folder(self.state)
        try:
            with ExitStack() as stack:
                store = stack.enter_context(Store(self.path))
                if batch := store.batch():
                    store.check_lengths()
                    self._check(store, batch)
                    stack.pop_all()
                    return store
        except Damaged as error:
            raise Damaged(f"{error}; bring it back, {self._way_out()}") from None
        except FileNotFoundError:
            pass  # that's fine: it is asked of the files whether there was one
        if lines and (found := next(self.files(), None)):
            raise Damaged(
                f"{self.path} is gone, but {self.output} holds files of partition {self.partition}, such as {found}: "
                f"give the right --state-dir, bring it back, {self._way_out()}"
            )
        return None

    def _check(self, store: Store, batch: Batch) -> None:
        """Raise `Damaged` where none of the files is in another folder than the one that the store was last used with."""
        if batch.output_inode in {0, self.output.stat().st_ino}:
            return
        known = store.files("length > 0")
        if known and not any((self.output / row.path).is_file() for row in known):
            raise Damaged(
                f"none of the {len(known)} files that {self.path} names is in {self.output}: is its disk mounted? Mount it, "
                f"or give the right --output"
            )

    def _way_out(self) -> str:
        return f"or, if it is lost, `logreceiver offsets adopt --partition {self.partition}` takes the files as they are"

    def files(self) -> Iterator[str]:
        """Yield the files below the output folder that must be this partition's, live and closed; raises OSError."""
        layout, others = Layout(self.template), self._known_to_others()
        for path in walk(self.output):
            live = live_of(path)
            host = layout.host_of(live)
            if host and live not in others and self._is_own(host, live, layout):
                yield path

    def _is_own(self, host: str, live: str, layout: Layout) -> bool:
        if mark := layout.mark_of(live):
            return mark == f"..p{self.partition}"
        return self.is_home_of(host)

    def _known_to_others(self) -> set[str]:
        known: set[str] = set()
        for path in self.state.glob("p*.db"):
            if path != self.path:
                with suppress(OSError, Damaged), Store(path) as store:
                    known.update(str(row[0]) for row in store.rows("SELECT path FROM files"))
        return known
