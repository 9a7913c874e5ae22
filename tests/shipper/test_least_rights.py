"""A shipper that may do nothing but ship its own host's lines can still claim, publish and rebuild its positions."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.processes import Processes, wait_until
from broker.connecting.connection import Connection, Denied

pytestmark = pytest.mark.nats

CONFIGURATION = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{store}", sync_interval: always }}
no_auth_user: "admin"
accounts {{
  LOGS {{
    jetstream: enabled
    users: [ {{ user: "admin", password: "admin" }} ]
    exports: [
      {{ service: "logs.>", accounts: [SHIP] }}
      {{ service: "$JS.API.DIRECT.GET.LOGS.>", accounts: [SHIP] }}
      {{ service: "$JS.API.DIRECT.GET.KV_LOGS_CONFIG.>", accounts: [SHIP] }}
      {{ service: "$JS.API.CONSUMER.CREATE.LOGS.*.logs.>", accounts: [SHIP] }}
      {{ service: "$JS.API.CONSUMER.DELETE.LOGS.*", accounts: [SHIP] }}
      {{ service: "$JS.API.CONSUMER.MSG.NEXT.LOGS.*", response_type: "stream", accounts: [SHIP] }}
    ]
  }}
  SHIP {{
    imports: [
      {{ service: {{ account: LOGS, subject: "logs.>" }} }}
      {{ service: {{ account: LOGS, subject: "$JS.API.DIRECT.GET.LOGS.>" }} }}
      {{ service: {{ account: LOGS, subject: "$JS.API.DIRECT.GET.KV_LOGS_CONFIG.>" }} }}
      {{ service: {{ account: LOGS, subject: "$JS.API.CONSUMER.CREATE.LOGS.*.logs.>" }},
         to: "SHIPAPI.CONSUMER.CREATE.LOGS.*.logs.>" }}
      {{ service: {{ account: LOGS, subject: "$JS.API.CONSUMER.DELETE.LOGS.*" }},
         to: "SHIPAPI.CONSUMER.DELETE.LOGS.*" }}
      {{ service: {{ account: LOGS, subject: "$JS.API.CONSUMER.MSG.NEXT.LOGS.*" }},
         to: "SHIPAPI.CONSUMER.MSG.NEXT.LOGS.*" }}
    ]
    users: [ {{ user: "web01", password: "web01", permissions: {{
      publish: {{ allow: [
        "logs.*.web01", "$JS.API.DIRECT.GET.LOGS.logs.*.web01",
        "$JS.API.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.partitions",
        "SHIPAPI.CONSUMER.CREATE.LOGS.shipper-web01.logs.*.web01",
        "SHIPAPI.CONSUMER.DELETE.LOGS.shipper-web01",
        "SHIPAPI.CONSUMER.MSG.NEXT.LOGS.shipper-web01" ] }}
      subscribe: {{ allow: [ "_INBOX_web01.>" ] }}
    }} }} ]
  }}
}}
"""


@pytest.fixture
def port(
    processes: Processes,
    tmp_path: Path,
    free_port: Callable[[], int],
    apply_logs: Callable[[str], None],
) -> int:
    port, path = free_port(), tmp_path / "secure.conf"
    path.write_text(CONFIGURATION.format(port=port, store=tmp_path / "secure-store"))
    binary = Path(sys.executable).with_name("nats-server")
    server = processes.start("secure", [binary, "-c", path])
    wait_until("is ready", lambda: "Server is ready" in server.last_words(), 20, [server])
    apply_logs(f"nats://127.0.0.1:{port}")
    return port


def test_least_rights_suffice_to_ship_and_to_rebuild(
    processes: Processes, tmp_path: Path, port: int, read_back: Callable[[str], bytes]
) -> None:
    log = tmp_path / "a.log"
    lines = b"".join(b"line %d\n" % number for number in range(100_000))
    cut = 600_000 + lines[600_000:].index(b"\n") + 1
    options = ["--server", f"nats://web01:web01@127.0.0.1:{port}", "--host", "web01", "--once"]
    command = [sys.executable, "-m", "shipper", *options, "--registry-api", "SHIPAPI"]

    for number, part in enumerate((lines[:cut], lines[cut:])):
        with log.open("ab") as file:
            file.write(part)
        # a new state folder each time: what is known comes from the stream alone
        state = ["--file", str(log), "--state-dir", str(tmp_path / f"state{number}")]
        process = processes.start(
            f"shipper{number}", [*command, *state], folder=Path(__file__).parents[2]
        )
        assert process.wait(30) == 0, process.last_words()

    assert read_back(f"nats://127.0.0.1:{port}") == lines


async def test_the_same_rights_do_not_reach_another_host(port: int) -> None:
    connection = Connection(
        [f"nats://web01:web01@127.0.0.1:{port}"], "test", inbox_prefix="_INBOX_web01"
    )
    try:
        with pytest.raises(Denied, match="permissions violation"):
            await connection.ask("logs.p0.web02", b"x", patience=1)
        with pytest.raises(Denied, match="permissions violation"):
            await connection.ask(
                "SHIPAPI.CONSUMER.CREATE.LOGS.shipper-web01.logs.p0.web02", b"{}", patience=1
            )
    finally:
        await connection.close()
