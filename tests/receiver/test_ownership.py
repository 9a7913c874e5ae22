"""Users, groups and modes as they are asked for: known or refused, and refused without the right to give files away."""

import os
import subprocess
import sys

import pytest

from broker.app.exits import ConfigurationError
from receiver.ownership import permissions_of

_AS_NOBODY = """
import os, sys
from broker.app.exits import ConfigurationError
from receiver.ownership import permissions_of
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
try:
    print(permissions_of(0o640, 0o750, sys.argv[1]))
except ConfigurationError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
@pytest.mark.parametrize(
    ("owner", "words"),
    [
        pytest.param("0", "only root may give files to 0; run as root, or as 0", id="user"),
        pytest.param(":0", "no member of group 0", id="group"),
        pytest.param("65534:0", "no member of group 0", id="user and group"),
        pytest.param("65534:65534", "user=65534, group=65534", id="itself"),
    ],
)
def test_who_may_not_give_files_away_is_told_what_to_do(owner: str, words: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, owner],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )

    assert words in told.stdout
    assert len(told.stdout.splitlines()) == 1


def test_a_refusal_is_one_of_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)

    with pytest.raises(ConfigurationError, match="run as root"):
        permissions_of(0o640, 0o750, "4243")
