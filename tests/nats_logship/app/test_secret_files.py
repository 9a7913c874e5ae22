"""A credential of the wrong kind is refused, and one that everybody may read is reported."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.cli import group as logbroker
from nats_logship.app.exits import ConfigurationError
from nats_logship.client.nkey import new_seed
from receiver.cli import logreceiver
from shipper.cli import logshipper
from tests.shipper.logs import run
from tests.support import forks

KINDS = {"host": "web01", "receiver": "3", "monitor": "grafana", "admin": "ops", "site": "paris"}
PROGRAMS = {
    "logshipper": (logshipper, ["--file", "x", "--once", "--patience", "1s"]),
    "logreceiver": (logreceiver, ["status"]),
    "receiving": (logreceiver, ["--partition", "0"]),
    "logbroker": (logbroker, ["status"]),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a credential of each kind, as the command writes them."""
    folder = tmp_path_factory.mktemp("credentials")
    (folder / "store").mkdir()
    init = ["tls", "init", "--store-dir", str(folder / "store"), "--name", "broker1"]
    assert CliRunner().invoke(logbroker, init).exit_code == 0
    for kind, name in KINDS.items():
        arguments = ["credentials", "add", kind, name, "--store-dir", str(folder / "store")]
        arguments += ["--server", "nats://127.0.0.1:1", "--output", str(folder / f"{kind}.toml")]
        done = CliRunner().invoke(logbroker, arguments)
        assert done.exit_code == 0, (done.output, done.exception)
    return folder


@pytest.mark.parametrize("option", ["--config", "--nkey"])
@pytest.mark.parametrize(
    ("program", "kind", "reason"),
    [
        ("logshipper", "receiver", "a receiver's credential, logshipper needs a host's"),
        ("logshipper", "monitor", "a monitor's credential, logshipper needs a host's"),
        ("logshipper", "site", "a site's credential, logshipper needs a host's"),
        ("logreceiver", "host", "a host's credential, logreceiver needs a receiver's"),
        ("logreceiver", "site", "a site's credential, logreceiver needs a receiver's"),
        ("receiving", "monitor", "a monitor's credential, logreceiver needs a receiver's"),
        ("logbroker", "host", "a host's credential, logbroker needs an admin's (to see"),
        ("logbroker", "receiver", "a receiver's credential, logbroker needs an admin's (to see"),
        ("logbroker", "site", "a site's credential, logbroker needs an admin's (to see"),
    ],
)
def test_a_credential_of_another_kind_is_refused_naming_the_needed_kind(
    made: Path, program: str, kind: str, reason: str, option: str
) -> None:
    command, arguments = PROGRAMS[program]
    path = made / f"{kind}.toml"

    done = CliRunner().invoke(command, [*arguments, option, str(path)])

    assert isinstance(done.exception, ConfigurationError)
    assert str(done.exception).startswith(f"{path} is {reason}")
    assert ": `logbroker credentials add " in str(done.exception)


def test_a_site_takes_no_other_credential(made: Path, tmp_path: Path) -> None:
    arguments = ["run", "--store-dir", str(tmp_path / "store"), "--site", "paris"]

    done = CliRunner().invoke(logbroker, [*arguments, "--site-nkey", str(made / "host.toml")])

    assert "is a host's credential, --site-nkey needs a site's" in str(done.exception)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["logshipper", "--file", "x", "--once", "--patience", "0s"], "host"),
        (["logreceiver", "status"], "receiver"),
        (["logbroker", "status"], "monitor"),
    ],
)
@pytest.mark.parametrize("option", ["--config", "--nkey", "seed in the settings"])
def test_each_start_warns_of_a_secret_that_everybody_can_read(
    made: Path, tmp_path: Path, command: list[str], kind: str, option: str
) -> None:
    path = tmp_path / "secret.toml"
    text = (made / f"{kind}.toml").read_text()
    path.write_text(f'nkey_seed = "{new_seed()}"\n' if option.startswith("seed") else text)
    arguments = [*command, "--server", "nats://127.0.0.1:1", option, str(path)]
    arguments = ["--config" if one.startswith("seed") else one for one in arguments]
    outputs = []

    for mode in (0o600, 0o640, 0o644):
        path.chmod(mode)
        outputs.append(forks.run(*arguments).stderr)

    warning = f"{path} holds a secret and can be read by everybody on this machine; chmod 600 it"
    assert [warning in one for one in outputs] == [False, False, True]


@pytest.mark.parametrize("authority", ["", "-----BEGIN CERTIFICATE-----"])
@pytest.mark.parametrize("password", ["web01:s3cret@", ""])
def test_a_password_in_an_address_is_a_secret(
    tmp_path: Path, authority: str, password: str
) -> None:
    path = tmp_path / "logshipper.toml"
    path.write_text(f'server = ["nats://{password}127.0.0.1:1"]\ntls_ca_pem = "{authority}"\n')
    path.chmod(0o644)

    output = run("--file", "x", "--once", "--patience", "0s", "--config", path).stderr

    assert (f"{path} holds a secret" in output) == ("chmod" in output) == bool(password)
    assert "s3cret" not in output


def test_a_certificate_is_a_secret_only_with_its_key(tmp_path: Path, tls: Path) -> None:
    both, arguments = tmp_path / "both.pem", ("--file", "x", "--once", "--patience", "0s")
    certificate = (tls / "client.pem").read_bytes()
    both.write_bytes(certificate + (tls / "client.key").read_bytes())
    alone = tmp_path / "alone.pem"
    alone.write_bytes(certificate)
    for path in (both, alone):
        path.chmod(0o644)

    outputs = [run(*arguments, "--tls-cert", path).stderr for path in (both, alone)]

    assert ["holds a secret" in one for one in outputs] == [True, False]


def test_the_console_warns_of_its_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o644)
    broker = ("--server", "nats://127.0.0.1:1", "--listen", "nowhere:1")

    output = forks.run("logbroker", "console", *broker, "--token-file", token).stderr

    assert f"{token} holds a secret" in output
