"""A credential file is settings that the program it is for takes as they are; it is its owner's alone."""

import os
from pathlib import Path

import pytest

from broker.app.configuration import ProgramSettings, load
from broker.app.exits import OperatorError
from broker.auth.files import CredentialFile, write_files
from broker.auth.store import Credential, CredentialKind
from broker.settings import BrokerSettings
from receiver.settings import ReceiverSettings
from shipper.settings import ShipperSettings
from tests.broker.auth.test_store import NOW, key

SEED = "SUAHG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG4YR6A"
SERVERS = ("nats://b1:4222", "nats://b2:4222")
HOST = 'wéb"01\\example'


def credential_file(kind: CredentialKind, name: str, *partitions: int) -> CredentialFile:
    one = Credential(kind=kind, name=name, nkey=key(1), since=NOW, partitions=partitions)
    return CredentialFile(one, SEED, SERVERS)


@pytest.mark.parametrize(
    ("file", "name", "model", "own"),
    [
        pytest.param(
            credential_file(CredentialKind.HOST, HOST),
            f"host-{HOST}.toml",
            ShipperSettings,
            {"host": HOST, "inbox_prefix": "_INBOX_=", "api_prefix": "JS.LOGS.API"},
            id="host",
        ),
        pytest.param(
            credential_file(CredentialKind.RECEIVER, "central", 0, 3),
            "receiver-central.toml",
            ReceiverSettings,
            {
                "partition": ("0", "3"),
                "inbox_prefix": "_INBOX_central",
                "api_prefix": "JS.LOGS.API",
            },
            id="receiver",
        ),
        pytest.param(
            credential_file(CredentialKind.MONITOR, "m"),
            "monitor-m.toml",
            BrokerSettings,
            {"inbox_prefix": "_INBOX_m", "api_prefix": "JS.LOGS.API"},
            id="monitor",
        ),
    ],
)
def test_a_program_takes_it_as_its_settings(
    file: CredentialFile,
    name: str,
    model: type[ProgramSettings],
    own: dict[str, str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(file.as_toml("x.toml"), "utf-8")

    settings = load(model, {}, path)

    given = {one: getattr(settings, one) for one in settings.model_fields_set}
    assert given.pop("nkey_seed").get_secret_value() == SEED
    if "inbox_prefix" in given:
        given["inbox_prefix"] = given["inbox_prefix"][: len(own["inbox_prefix"])]
    assert given == {"server": SERVERS, **own}
    assert file.name == name
    assert SEED not in repr(file)


def test_secrets_are_for_their_owner_alone_and_replace_others_by_force_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "b").symlink_to(tmp_path / "theirs")
    texts = {tmp_path / name: "s3cret" for name in "abc"}
    before = os.umask(0)
    try:
        with pytest.raises(OperatorError, match="b is there already; --force replaces it"):
            write_files(texts, force=False)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "theirs"]

        write_files(texts, force=True)
    finally:
        os.umask(before)

    assert {path.stat().st_mode & 0o777 for path in texts} == {0o600}
    assert {path.read_text() for path in texts} == {"s3cret"}
    assert (tmp_path / "theirs").read_text() == "theirs"
    with pytest.raises(OperatorError, match=r"cannot write .*No such file or directory"):
        write_files({tmp_path / "gone" / "a": "s3cret"}, force=False)
