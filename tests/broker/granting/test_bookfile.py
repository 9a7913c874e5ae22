"""The book on disk: whole or as before, for one writer at a time, and refused rather than taken for an empty one."""

import fcntl
import os
from pathlib import Path

import pytest

from broker.exits import ConfigurationError, OperatorError
from broker.granting.book import Book
from broker.granting.bookfile import BOOK, held_book, load_book
from broker.granting.booktext import write_book
from tests.broker.granting.test_book import BOOK as WRITTEN


def test_where_there_is_no_book_the_broker_is_open(tmp_path: Path) -> None:
    assert load_book(tmp_path) == Book()


def test_a_book_that_was_written_is_read_and_replaced(tmp_path: Path) -> None:
    with held_book(tmp_path / "store") as held:
        assert held.book == Book()
        held.write(WRITTEN)

    assert load_book(tmp_path / "store") == WRITTEN
    with held_book(tmp_path / "store") as held:
        assert held.book == WRITTEN
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "store" / BOOK).stat().st_mode & 0o777 == 0o640


def test_a_damaged_book_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    text = write_book(WRITTEN)[:-20]
    (tmp_path / BOOK).write_text(text)

    with pytest.raises(ConfigurationError, match=r"is damaged: .*put back a copy"):
        load_book(tmp_path)
    with pytest.raises(ConfigurationError), held_book(tmp_path):
        pytest.fail("a damaged book was held")
    assert (tmp_path / BOOK).read_text() == text


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / BOOK).mkdir()

    with pytest.raises(ConfigurationError, match=r"cannot read .*: Is a directory"):
        load_book(tmp_path)


def test_a_book_that_somebody_else_holds_is_waited_for_and_then_said(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "credentials.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    with (
        pytest.raises(OperatorError, match="another program is changing"),
        held_book(tmp_path, 0.1),
    ):
        pytest.fail("two hold it")
    os.close(descriptor)

    with held_book(tmp_path) as held:
        assert held.book == Book()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_belongs_to_the_folders_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)

    with held_book(tmp_path) as held:
        held.write(WRITTEN)

    owners = {(path.stat().st_uid, path.stat().st_gid) for path in tmp_path.iterdir()}
    assert owners == {(12345, 12346)}
