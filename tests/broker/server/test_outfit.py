from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.app.address import Address
from broker.app.exits import ConfigurationError
from broker.auth.store_file import held_credentials
from broker.server.door import Door
from broker.server.outfit import put_together
from broker.server.store import Space
from broker.settings import BrokerSettings
from tests.broker.auth.test_store import STORE

SPACE = Space(free=10**9, held=0, total=10**10, promised=0)
ANYWHERE = Address("0.0.0.0", 4222)
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def settings(**changes: object) -> BrokerSettings:
    return BrokerSettings().model_copy(update=changes)


@pytest.mark.parametrize("option", ["listen", "http"])
def test_without_credentials_nothing_is_open_to_the_network(tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^--{option} 0.0.0.0:4222 .*--allow-anonymous"):
        put_together(settings(**{option: ANYWHERE}), Door(tmp_path), SPACE, NOW)


def test_whoever_says_so_may_be_open_to_a_closed_network(tmp_path: Path) -> None:
    asked = settings(listen=ANYWHERE, http=ANYWHERE, allow_anonymous=True)

    assert put_together(asked, Door(tmp_path), SPACE, NOW).conf.listen == ANYWHERE


def test_with_credentials_clients_may_come_from_everywhere(tmp_path: Path) -> None:
    with held_credentials(tmp_path) as held:
        held.write(STORE)

    assert put_together(settings(listen=ANYWHERE), Door(tmp_path), SPACE, NOW).admission.secured
