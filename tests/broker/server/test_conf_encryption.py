import pytest

from broker.server.conf_encryption import Cipher, Encryption, Stored, refusal, render_encryption

PLAIN, CHACHA, AES = Stored(plain=3), Stored(ciphers=frozenset({Cipher.CHACHA20})), Cipher.AES


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        pytest.param(Stored(), None, id="new, in the clear"),
        pytest.param(Stored(), AES, id="new, encrypted"),
        pytest.param(PLAIN, None, id="in the clear as before"),
        pytest.param(CHACHA, Cipher.CHACHA20, id="encrypted as before"),
    ],
)
def test_a_store_is_run_as_it_is(stored: Stored, wanted: Cipher | None) -> None:
    assert not refusal(stored, wanted)


@pytest.mark.parametrize(
    ("stored", "wanted", "reason"),
    [
        pytest.param(CHACHA, None, "taken for empty; give --encryption-key-file", id="no key"),
        pytest.param(PLAIN, AES, "not encrypted in place: take a `logbroker backup`", id="plain"),
        pytest.param(CHACHA, AES, "give --encryption-cipher chacha20", id="another cipher"),
    ],
)
def test_a_store_is_never_run_as_something_else(
    stored: Stored, wanted: Cipher | None, reason: str
) -> None:
    assert reason in refusal(stored, wanted)


def test_a_key_is_in_no_configuration_and_shown_nowhere() -> None:
    encryption = Encryption(AES, "0123456789abcdef")

    assert "0123456789abcdef" not in repr(encryption) + "".join(render_encryption(AES))
    assert encryption.environment() == {"LOGSHIP_STORE_KEY": '"0123456789abcdef"'}
