"""Who gets in at a running broker, by the credential store in its directory; only a person opens a broker to everybody."""

import secrets
from datetime import datetime
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.auth.accounts import MONITOR, RECEIVE, SHIP, Admission, admit
from broker.auth.store_file import CREDENTIALS, load_credentials
from broker.client.access import Access
from broker.client.nkey import new_seed, user_key
from broker.settings_security import SecuritySettings

__all__ = ["ServerAccess"]

_SECRET_BYTES = 24


class ServerAccess:
    """Holds the key of this process, which nobody else knows, and reads the credential store when asked to."""

    def __init__(self, folder: Path) -> None:
        """Make the keys of this process; reads nothing yet."""
        seed = new_seed()
        self.own = Access(nkey_seed=seed)
        """How logbroker itself gets in."""
        self._own, self._anybody = user_key(seed).public, user_key(new_seed()).public
        self.folder = folder
        """The broker's directory, absolute."""
        self.monitoring = f"/{secrets.token_urlsafe(_SECRET_BYTES)}"
        """The path of a secured server's monitoring, which asks for no credential and tells everybody's inboxes."""
        self._was_secured = False

    def look(self, settings: SecuritySettings, now: datetime, streams: int = 1) -> Admission:
        """Return who gets in at `now`, where partitions are spread over so many streams.

        Raises `ConfigurationError` for a credential store that will not do. So does one that is gone while this broker runs: whoever opens a broker says so (`revoke --open-again`).
        """
        store = load_credentials(self.folder)
        if self._was_secured and store.revision == 0:
            raise ConfigurationError(
                f"{self.folder / CREDENTIALS} is gone; put back a copy of it, or add the credentials again"
            )
        self._was_secured = store.secured
        limits = {
            SHIP: settings.host_limits,
            RECEIVE: settings.receiver_limits,
            MONITOR: settings.monitor_limits,
        }
        return admit(store, self._own, self._anybody, now, limits, streams=streams)
