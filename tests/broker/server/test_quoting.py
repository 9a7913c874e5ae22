import subprocess
from pathlib import Path

import pytest

from broker.server.binary import find
from broker.server.quoting import quoted

ODD = "".join(map(chr, range(1, 256))) + "ü€😀 $2a$11$x \\u0041 \\x41 ${HOME} 'a' (b) #c //d"


def test_an_ordinary_text_reads_as_it_is() -> None:
    assert quoted("/etc/ü/o'neill.pem") == '"/etc/ü/o\'neill.pem"'


@pytest.mark.nats
def test_any_text_is_a_string_to_nats_server(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    lines = [f"  s{n}: {quoted(text)}" for n, text in enumerate([ODD, *ODD, "\\", '"', ""])]
    path.write_text(
        "\n".join(["server_metadata {", *lines, "}", f"pid_file: {quoted(ODD)}\n"]), "utf-8"
    )

    asked = subprocess.run([find(None), "-t", "-c", path], capture_output=True, check=False)

    assert asked.returncode == 0, asked.stderr
