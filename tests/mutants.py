"""Bugs that the tests must find: each is one wrong expression in the core of a promise.

`python -m tests.mutants` plants each in a copy of the checkout and runs the tests named with it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
_FAILED = (1, 2)  # where workers of pytest-xdist are stopped at the first failure it is 2


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug that `tests` find: in `path` the text `right`, which is there once, is `wrong`."""

    promise: str
    path: str
    right: str
    wrong: str
    tests: str


MUTANTS = (
    Mutant(
        "a host's partition is FNV-1a",
        "nats_logship/wire/subjects.py",
        "((digest ^ byte) * _FNV_PRIME)",
        "((digest * _FNV_PRIME) ^ byte)",
        "tests/nats_logship/wire tests/docs/test_protocol.py",
    ),
    Mutant(
        "partition N lives in LOGS_<N mod S>",
        "nats_logship/wire/streams.py",
        "[partition % streams]",
        "[partition // 2 % streams]",
        "tests/broker tests/shipper/publish/test_sessions.py",
    ),
    Mutant(
        "a lost delivery is noticed",
        "nats_logship/client/stream_reader.py",
        "delivery.number != number or",
        "delivery.number < number or",
        "tests/nats_logship/client/test_stream_reader.py",
    ),
    Mutant(
        "sections make up a message's lines exactly",
        "nats_logship/wire/message.py",
        "if origin.size != len(payload):",
        "if origin.size > len(payload):",
        "tests/nats_logship/wire",
    ),
    Mutant(
        "a section that was received already is dropped",
        "receiver/consume/judging.py",
        "if reached >= span.end:",
        "if reached > span.end:",
        "tests/receiver/consume",
    ),
    Mutant(
        "a range that is missing is a gap",
        "receiver/consume/judging.py",
        "if reached is None or span.start == reached:",
        "if reached is None or span.start >= reached:",
        "tests/receiver/consume",
    ),
    Mutant(
        "of a section that was received in part the rest is written",
        "receiver/consume/judging.py",
        "reached - span.start, found)",
        "0, found)",
        "tests/receiver/consume",
    ),
    Mutant(
        "nobody's lines are glued to another file's unfinished line",
        "nats_logship/wire/endings.py",
        "is_adjacent and before.source == source",
        "is_adjacent",
        "tests/receiver/test_task_messages.py",
    ),
    Mutant(
        "a batch that was not committed is cut off",
        "receiver/storage/recovery.py",
        "length=row.length_before,",
        "length=row.length,",
        "tests/receiver/test_task_kills.py",
    ),
    Mutant(
        "the spans of a batch that was not committed are taken back",
        "receiver/storage/store.py",
        "SET until = until_before,",
        "SET until = until,",
        "tests/receiver/test_task_kills.py",
    ),
    Mutant(
        "a start leaves bytes behind the committed length to the session",
        "receiver/storage/recovery.py",
        "surplus.ends[row.path] = found.st_size",
        "folders.cut(row.path, row.length)",
        "tests/receiver/test_task_readers.py",
    ),
    Mutant(
        "bytes that are not what is received again are cut",
        "receiver/storage/surplus.py",
        "return begin + _count_equal(piece, found)",
        "return begin + len(found)",
        "tests/receiver/test_task_readers.py",
    ),
    Mutant(
        "a file with a surplus is not closed",
        "receiver/storage/output.py",
        "is_due &= path not in self.surplus.ends",
        "is_due &= True",
        "tests/receiver/test_task_readers.py",
    ),
    Mutant(
        "a stored batch counts as committed where KV names it",
        "receiver/storage/recovery.py",
        "offset.next == batch.first):\n        return batch.number\n",
        "offset.next == batch.first):\n        return batch.number + 1\n",
        "tests/receiver/storage tests/receiver/test_task_kills.py",
    ),
    Mutant(
        "a rotated file is recognised by the bytes before its position",
        "shipper/sources/files/sampling.py",
        "has_size and fingerprint(tail) == cursor.identity.tail_hash",
        "has_size",
        "tests/shipper/sources/files",
    ),
    Mutant(
        "a file that was opened when it came is read although it was deleted",
        "shipper/sources/files/arrivals.py",
        "return replace(self.entry, size=status.st_size, modified=status.st_mtime_ns)",
        "return None",
        "tests/shipper/sources/files/test_arrivals.py",
    ),
    Mutant(
        "a file that came and was deleted is read before its successor",
        "shipper/sources/files/catalogue.py",
        "if sample.entry.key in self.memory.gone:  # and",
        "if False:  # and",
        "tests/shipper/sources/files/test_arrivals.py",
    ),
    Mutant(
        "a copy of a truncated file takes over its unread rest",
        "shipper/sources/files/decide.py",
        "return Decision(FileState.FOLLOWED, (Action.INHERIT,), best.cursor)",
        "return Decision(FileState.COPY, (), best.cursor)",
        "tests/shipper/sources/files",
    ),
    Mutant(
        "what was written over a file's content is another file",
        "shipper/sources/files/decide.py",
        "if not compared.is_same:",
        "if False:",
        "tests/shipper/sources/files/test_rewritten.py",
    ),
    Mutant(
        "other lines wait for the end of a record that is in pieces",
        "shipper/sources/files/progress.py",
        "seen=cursor.seen,\n            in_line=bool(cursor.rest),\n            beginning",
        "seen=cursor.seen,\n            in_line=False,\n            beginning",
        "tests/shipper/sources/files/test_records.py",
    ),
    Mutant(
        "a filter keeps whole records",
        "nats_logship/wire/records.py",
        "last = max(end, begins[behind]) if",
        "last = end if",
        "tests/shipper/test_line_filter.py",
    ),
    Mutant(
        "a round names the last sequence of its subject",
        "shipper/publish/publisher.py",
        "{EXPECTED_SEQUENCE: str(claims.last)}",
        "{}",
        "tests/shipper/publish",
    ),
    Mutant(
        "an agent that came later fences an older one",
        "shipper/publish/claims.py",
        "sequence > self._first[1]",
        "sequence < self._first[1]",
        "tests/shipper/publish",
    ),
    Mutant(
        "what another durable consumer has not acknowledged stays",
        "broker/retention/decide.py",
        'int(consumer["ack_floor"]["stream_seq"]) + 1',
        'int(consumer["ack_floor"]["stream_seq"]) + 1000',
        "tests/broker/retention",
    ),
    Mutant(
        "what a receiver has not committed stays",
        "broker/retention/decide.py",
        "*needs.values()])",
        "])",
        "tests/broker/retention",
    ),
    Mutant(
        "snapshots are completed before their messages are purged",
        "broker/retention/purge.py",
        "        await complete_snapshots(connection, one.stream, one.until)",
        "        pass",
        "tests/broker/retention",
    ),
    Mutant(
        "a host publishes lines of its own name only",
        "broker/auth/permissions.py",
        "publish=(subject, positions,",
        'publish=("logs.>", positions,',
        "tests/broker/auth",
    ),
    Mutant(
        "the number of partitions is written last",
        "broker/provision/plan.py",
        "return (*steps, *_plan_entry(PARTITIONS_KEY, actual, partitions))",
        "return (*_plan_entry(PARTITIONS_KEY, actual, partitions), *steps)",
        "tests/broker/provision",
    ),
)


def planted(mutant: Mutant, copy: Path) -> None:
    """Plant a bug in a copy of the checkout; raises ValueError if the code has changed."""
    path = copy / mutant.path
    text = path.read_text("utf-8")
    if text.count(mutant.right) != 1:
        raise ValueError(f"{mutant.path} has {mutant.right!r} {text.count(mutant.right)} times")
    wrong = text.replace(mutant.right, mutant.wrong)
    compile(wrong, mutant.path, "exec")
    path.write_text(wrong, "utf-8")


def is_found(mutant: Mutant, copy: Path) -> bool:
    """Whether a test fails with a bug that is planted in a copy; the bug is removed again."""
    planted(mutant, copy)
    arguments = ["-q", "-x", "-n", "2", "-p", "no:cacheprovider", "-m", "not long"]
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments, *mutant.tests.split()],
            check=False,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            stdout=subprocess.DEVNULL,
        )
    finally:
        shutil.copy2(ROOT / mutant.path, copy / mutant.path)
    return ended.returncode in _FAILED


@click.command()
@click.argument("numbers", nargs=-1, type=click.IntRange(1, len(MUTANTS)))
def main(numbers: Sequence[int]) -> None:
    """Plant the bugs of these NUMBERS, or all; exits with 1 when the tests miss one."""
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", ".git", ".*_cache"))
        for number in numbers or range(1, len(MUTANTS) + 1):
            mutant = MUTANTS[number - 1]
            found = is_found(mutant, copy)
            missed += not found
            click.echo(f"{number:2} {'found ' if found else 'MISSED'} {mutant.promise}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
