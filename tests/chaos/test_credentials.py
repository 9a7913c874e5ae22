"""What is done to a book of credentials is such that no broker may go by it."""

import random

import pytest

from broker.granting.book import Book
from broker.granting.booktext import BookUnreadable, read_book, write_book
from tests.chaos.faults.credentials import DAMAGES, Damage


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_book_is_never_one_that_can_be_read(damage: Damage, seed: int) -> None:
    whole = write_book(Book()).encode()

    damaged = damage(whole, random.Random(seed))

    with pytest.raises((BookUnreadable, UnicodeDecodeError)):
        read_book(damaged.decode("utf-8"))
