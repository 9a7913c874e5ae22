"""Who gets in at a broker at a moment: the book of credentials, logbroker itself, and what limits them. Decides."""

from dataclasses import dataclass, replace
from datetime import datetime

from broker.granting.accounts import RECEIVE, SHIP, Accounts, accounts_of, open_accounts
from broker.granting.book import Book
from broker.granting.identity import Certificate, Nkey, Password
from broker.granting.limits import Limits

__all__ = ["Admission", "House", "admit"]

_AGAIN = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class House:
    """What is the broker's own: how logbroker gets in (by `name` where certificates count), and everybody's key."""

    own: Password
    name: Certificate
    anybody: Nkey
    hosts: Limits
    receivers: Limits


@dataclass(frozen=True, slots=True)
class Admission:
    """What nats-server is to be told, and what it comes from.

    `revision` is the book's; `mapped` says that names in certificates are credentials; at `until` a proof is over.
    """

    accounts: Accounts
    revision: int
    secured: bool
    credentials: int
    mapped: bool
    until: datetime | None

    def seconds_left(self, now: datetime) -> float | None:
        """Return the seconds until it is to be looked at again, None for never.

        What is over by now could not be taken away then, e.g. by a damaged book: not at once again.
        """
        if self.until is None:
            return None
        left = (self.until - now).total_seconds()
        return left if left > 0 else _AGAIN


def admit(book: Book, house: House, now: datetime) -> Admission:
    """Return who gets in at `now`."""
    identities = book.identities(now)
    mapped = any(isinstance(one.proof, Certificate) for one in identities)
    accounts = (
        # where names in certificates count, nats-server looks at no password
        accounts_of(identities, house.name if mapped else house.own)
        if book.secured
        else open_accounts(house.own, house.anybody)
    )
    return Admission(
        _limited(accounts, house),
        book.revision,
        book.secured,
        len(book.entries),
        mapped,
        book.next_end(now),
    )


def _limited(accounts: Accounts, house: House) -> Accounts:
    limits = {SHIP: house.hosts, RECEIVE: house.receivers}
    return replace(
        accounts,
        accounts=tuple(replace(one, limits=limits.get(one.name)) for one in accounts.accounts),
    )
