"""The file of a credential is settings that the program it is for takes as they are."""

import json
import tomllib
from pathlib import Path

import pytest

from broker.app.configuration import ProgramSettings, load
from broker.granting.carried import Carried, file_name
from broker.granting.identity import Certificate, Identity, Kind, Nkey
from broker.settings import BrokerSettings
from receiver.settings import ReceiverSettings
from shipper.settings import ShipperSettings

SEED = "SUAHG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG4YR6A"
PROOF = Nkey("U" + "A" * 55)
SERVERS = ("nats://b1:4222", "nats://b2:4222")
HOST = Identity(Kind.HOST, 'wéb"01\\.example', PROOF)
SOME = Identity(Kind.RECEIVER, "central", PROOF, (0, 3))
EVERY = Identity(Kind.RECEIVER, "all", PROOF)
ADMIN = Identity(Kind.ADMIN, "ops", PROOF)


def carried(identity: Identity) -> Carried:
    return Carried(identity, SERVERS, {"nkey_seed": SEED})


@pytest.mark.parametrize(
    ("identity", "model", "own"),
    [
        pytest.param(HOST, ShipperSettings, {"host": HOST.name}, id="host"),
        pytest.param(SOME, ReceiverSettings, {"partition": ("0", "3")}, id="receiver"),
        pytest.param(EVERY, ReceiverSettings, {"partition": ("all",)}, id="of-all"),
        pytest.param(ADMIN, BrokerSettings, {}, id="admin"),
    ],
)
def test_a_program_takes_it_as_its_settings(
    identity: Identity, model: type[ProgramSettings], own: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(carried(identity).as_toml("x.toml"), "utf-8")

    settings = load(model, {}, path)

    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    assert given.pop("nkey_seed").get_secret_value() == SEED
    assert given == {"server": SERVERS, **own}


def test_a_receiver_with_a_certificate_is_told_where_it_hears_answers() -> None:
    central = Identity(Kind.RECEIVER, "central", Certificate("central.example.net"))

    assert carried(central).settings()["inbox_prefix"] == "_INBOX_central"
    assert "inbox_prefix" not in carried(SOME).settings()


@pytest.mark.parametrize("identity", [HOST, SOME, EVERY, ADMIN])
def test_programs_get_the_same_as_an_object_in_a_line(identity: Identity) -> None:
    text = carried(identity).as_json()

    assert text.count("\n") == 1
    assert json.loads(text) == {
        "kind": identity.kind.value,
        "name": identity.name,
        "settings": tomllib.loads(carried(identity).as_toml("x.toml")),
    }


def test_a_secret_shows_in_no_text_of_the_value() -> None:
    assert SEED not in repr(carried(HOST))


def test_of_a_certificate_it_says_which_one_is_missing() -> None:
    text = Carried(Identity(Kind.HOST, "a", Certificate("CN=a")), SERVERS, {}).as_toml("a.toml")

    assert '# tls_cert and tls_key: a certificate for "CN=a", and its key' in text
    assert tomllib.loads(text) == {"server": list(SERVERS), "host": "a"}


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        (Identity(Kind.HOST, "web01", PROOF), "host-web01.toml"),
        (Identity(Kind.RECEIVER, "3", PROOF), "receiver-3.toml"),
        (Identity(Kind.ADMIN, "admin", PROOF), "admin.toml"),
    ],
)
def test_it_is_called_by_kind_and_name(identity: Identity, name: str) -> None:
    assert file_name(identity, "toml") == name
