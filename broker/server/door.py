"""The door of a running broker: whom it lets in now, by the book in its folder. Opens only by what a person wrote."""

import secrets
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.client.access import Access
from broker.granting.admission import Admission, House, admit
from broker.granting.book import Key
from broker.granting.bookfile import BOOK, load_book
from broker.granting.identity import OWN_NAME, Certificate, Kind, Nkey, Password
from broker.granting.issue import Way, issue
from broker.settings_grant import GrantSettings

__all__ = ["Door"]

_OWN = Key(Kind.ADMIN, "logbroker")
_SECRET_BYTES = 24


class Door:
    """Holds what this process gets in by itself, which nobody else knows, and reads the book when asked to."""

    def __init__(self, folder: Path) -> None:
        """Make up this process's own secret; reads nothing yet."""
        own, anybody = issue(Way.PASSWORD, _OWN), issue(Way.NKEY, _OWN)  # the seed is thrown away
        if not isinstance(own.proof, Password) or not isinstance(anybody.proof, Nkey):
            raise TypeError("a password and a key were asked for")
        self.own = Access(user=_OWN.name, password=own.secret["password"])
        """How logbroker itself gets in."""
        self._password, self._anybody = replace(own.proof, user=_OWN.name), anybody.proof
        self.folder = folder
        """The broker's folder, absolute."""
        self.monitoring = f"/{secrets.token_urlsafe(_SECRET_BYTES)}"
        """The path of a secured server's monitoring, which asks for no credential and tells everybody's inboxes."""
        self._was_secured = False

    def look(self, settings: GrantSettings, now: datetime) -> Admission:
        """Return who gets in at `now`; raises `ConfigurationError` for a book that will not do.

        So does one that is gone while this broker runs: whoever opens a broker says so (`revoke --open-again`).
        """
        book = load_book(self.folder)
        if self._was_secured and book.revision == 0:
            raise ConfigurationError(
                f"{self.folder / BOOK} is gone; put back a copy of it, or add the credentials again"
            )
        self._was_secured = book.secured
        house = House(
            self._password,
            Certificate(OWN_NAME),
            self._anybody,
            settings.host_limits,
            settings.receiver_limits,
        )
        return admit(book, house, now)

    def is_behind(self, admission: Admission) -> bool:
        """Whether the book is another one by now than `admission` comes from, or cannot be read."""
        try:
            return load_book(self.folder).revision != admission.revision
        except ConfigurationError:
            return True
