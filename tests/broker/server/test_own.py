import subprocess
from pathlib import Path

import pytest

from broker.app.address import Address
from broker.app.exits import ConfigurationError
from broker.server.binary import find
from broker.server.conf import ServerConf, render
from broker.server.own import included

pytestmark = pytest.mark.nats


def ours(folder: Path) -> str:
    return render(ServerConf("one", Address("127.0.0.1", 0), None, str(folder), 10**9))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    (tmp_path / "etc here").mkdir()
    return tmp_path / "etc here" / "own.conf"


def test_a_configuration_of_ones_own_is_included_from_anywhere(own: Path) -> None:
    (own.parent / "tags.conf").write_text("server_tags: [ssd]\n", "utf-8")
    own.write_text("max_connections: 5000\ninclude 'tags.conf'\n", "utf-8")
    folder, binary = own.parents[1] / "store", find(None)

    line = included(binary, own, folder, ours(folder))

    whole = folder / "nats-server.conf"
    whole.write_text(f"{line}\n{ours(folder)}", "utf-8")
    assert subprocess.run([binary, "-t", "-c", whole], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('\nmax_colour: "x"\n', "own.conf:2:1: unknown field"),
        ("max_connections: many\n", "own.conf:1:0: is string, should be int64"),
        ("\nwebsocket {\n", "own.conf:3: "),
        ("\nmax_connections: $NOPE\n", "own.conf:2: variable reference"),
        ("\xa7\x00", "own.conf:1"),
        ("include 'none.conf'\n", "none.conf: no such file"),
        ("\n\naccounts { }\n", "own.conf:3: accounts cannot be set here: use `logbroker cred"),
        ("lame_duck_duration: 40s\n", "own.conf:1: lame_duck_duration cannot be set here"),
        ('{"debug": true, "listen": ":1"}', "own.conf:1: listen cannot be set here: use --listen"),
    ],
)
def test_what_will_not_do_is_told_in_one_line_with_its_place(
    own: Path, text: str, told: str
) -> None:
    own.write_text(text, "utf-8")

    with pytest.raises(ConfigurationError) as caught:
        included(find(None), own, own.parents[1] / "store", ours(own.parent))

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_an_included_file_says_is_judged_as_well(own: Path) -> None:
    (own.parent / "more.conf").write_text("\njetstream { }\n", "utf-8")
    own.write_text("include more.conf\n", "utf-8")

    with pytest.raises(ConfigurationError, match=r"more\.conf:2: jetstream cannot be set here"):
        included(find(None), own, own.parents[1] / "store", ours(own.parent))


def test_a_file_that_is_not_there_is_told(own: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"own\.conf: .*no such file"):
        included(find(None), own, own.parents[1] / "store", "")
