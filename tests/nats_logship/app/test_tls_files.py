"""Errors of the files that options of TLS name, by every program with such options."""

from pathlib import Path
from typing import NamedTuple

import pytest

from nats_logship.app.exits import Exit
from tests.support import forks

DEAD = ("--server", "nats://127.0.0.1:1")


class Options(NamedTuple):
    certificate: str
    key: str
    authorities: str


OWN = Options("--tls-cert", "--tls-key", "--tls-ca")
CONSOLE = Options("--listen-cert", "--listen-key", "--listen-ca")
BROKER = Options("--server-cert", "--server-key", "--client-ca")


def assert_refused(
    program: tuple[str, ...], options: Options, files: tuple[Path, ...], reason: str
) -> None:
    given = [word for pair in zip(options, files, strict=False) for word in pair]
    names = (f"--store-dir={files[0].parent / 'store'}",) if options is BROKER else DEAD

    done = forks.run(*program, *names, *given)

    assert done.returncode == Exit.CONFIGURATION, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{program[0]}: ")
    assert last.endswith(reason.format(*files, **options._asdict()))


@pytest.mark.parametrize(
    ("program", "options"),
    [
        (("logbroker", "run"), BROKER),
        (("logbroker", "console"), CONSOLE),
        (("logbroker", "status"), OWN),
        (("logshipper", "--file", "x", "--once", "--patience", "0s"), OWN),
        (("logreceiver", "verify", "--output", "."), OWN),
    ],
)
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (("gone.pem",), "cannot read {0}: No such file or directory; check {certificate}"),
        (
            ("server.pem", "client.key"),
            "key in {1} is not that of the certificate in {0}; check {certificate} and {key}",
        ),
        (
            ("server.pem", "server.key", "server.key"),
            "{2} holds no certificate in PEM form (-----BEGIN …); check {authorities}",
        ),
    ],
)
def test_every_program_names_the_file_and_the_option(
    tls: Path, program: tuple[str, ...], options: Options, files: tuple[str, ...], reason: str
) -> None:
    assert_refused(program, options, tuple(tls / file for file in files), reason)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ("kk", "{0} holds no certificate in PEM form (-----BEGIN …); check {certificate}"),
        ("cc", "{1} holds no private key in PEM form (-----BEGIN …); check {key}"),
        ("dk", "cannot use {0} or {1}: it is damaged; check {certificate} and {key}"),
        ("cl", "give {key} a key without one (`openssl pkey -in {1} -out FILE`)"),
        ("ckd", "a certificate in {2} is damaged; check {authorities}"),
    ],
)
def test_each_wrong_content_has_an_error_of_its_own(
    tls: Path, tmp_path: Path, contents: str, reason: str
) -> None:
    certificate, key = ((tls / f"server.{end}").read_text() for end in ("pem", "key"))
    texts = {
        "c": certificate,
        "k": key,
        "d": certificate.replace("\nMII", "\nAAA"),
        "l": _lock(key),
    }
    files = tuple(tmp_path / f"{number}.pem" for number in range(len(contents)))
    for path, kind in zip(files, contents, strict=True):
        path.write_text(texts[kind])
        path.chmod(0o600)

    assert_refused(("logbroker", "console"), CONSOLE, files, reason)


def _lock(key: str) -> str:
    from cryptography.hazmat.primitives import serialization

    loaded = serialization.load_pem_private_key(key.encode(), None)
    form = serialization.PrivateFormat.PKCS8
    locked = serialization.BestAvailableEncryption(b"a password")
    return loaded.private_bytes(serialization.Encoding.PEM, form, locked).decode()
