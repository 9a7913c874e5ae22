"""A credential file is settings that the program it is for takes as they are."""

from pathlib import Path

import pytest

from broker.app.configuration import ProgramSettings, load
from broker.auth.files import CredentialFile
from broker.auth.store import Credential, CredentialKind
from broker.settings import BrokerSettings
from broker.wire.subjects import inbox_of
from receiver.settings import ReceiverSettings
from shipper.settings import ShipperSettings
from tests.broker.auth.test_store import NOW, key

SEED = "SUAHG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG4YR6A"
SERVERS = ("nats://b1:4222", "nats://b2:4222")
HOST = 'wéb"01\\example'


@pytest.mark.parametrize(
    ("kind", "name", "partitions", "model", "own"),
    [
        (CredentialKind.HOST, HOST, (), ShipperSettings, {"host": HOST}),
        (CredentialKind.RECEIVER, "a", (0, 3), ReceiverSettings, {"partition": ("0", "3")}),
        (CredentialKind.MONITOR, "m", (), BrokerSettings, {}),
    ],
    ids=["host", "receiver", "monitor"],
)
def test_a_program_takes_it_as_its_settings(
    kind: CredentialKind,
    name: str,
    partitions: tuple[int, ...],
    model: type[ProgramSettings],
    own: dict[str, str],
    tmp_path: Path,
) -> None:
    one = Credential(kind=kind, name=name, nkey=key(1), since=NOW, partitions=partitions)
    file = CredentialFile(one, SEED, SERVERS)
    path = tmp_path / file.name
    path.write_text(file.as_toml(file.name), "utf-8")

    settings = load(model, {}, path)

    given = {field: getattr(settings, field) for field in settings.model_fields_set}
    assert given.pop("nkey_seed").get_secret_value() == SEED
    ours = {"inbox_prefix": inbox_of(name), "api_prefix": "JS.LOGS.API"}
    assert given == {"server": SERVERS, **ours, **own}
    assert SEED not in repr(file)
