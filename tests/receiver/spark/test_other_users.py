"""Another user of the machine finds the ports of a local Spark, and is refused at each."""

import json
import socket
import struct
import sys
from pathlib import Path

import pytest

from tests.descriptors import held_by
from tests.support.processes import Processes, proc, wait_until

pytestmark = pytest.mark.spark

_START = 120  # seconds, on a machine that is busy otherwise
_LISTENING = "0A"
_LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
_REQUEST, _FAILURE = 3, 5  # kinds of messages: org.apache.spark.network.protocol.Message.Type

PROGRAM = """
import json, sys, time
from receiver.spark.session import spark_context
with spark_context("local[1]") as sc:
    sc.parallelize([1], 1).map(lambda n: n).collect()
    gateway = sc._gateway
    secrets = [gateway.gateway_parameters.auth_token]
    hadoop = sc._jvm.org.apache.hadoop
    kept = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    secrets.append((kept.getSecretKey(hadoop.io.Text("sparkCookie")) or b"none").decode())
    report = {"jvm": gateway.proc.pid, "gateway": gateway.gateway_parameters.port}
    settings = dict(sc.getConf().getAll())
    print(json.dumps(report | {"secrets": secrets, "settings": settings}), flush=True)
    time.sleep(600)
"""


def listening(pid: int) -> dict[int, str]:
    """Return the TCP ports that a process listens on, and at which address each."""
    own = {held[8:-1] for held in held_by(pid) if held.startswith("socket:[")}
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENING and inode in own:
                address, port = local.split(":")
                found[int(port, 16)] = address
    return found


def exchange(port: int, message: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(message)
        return connection.recv(65536)


def open_blocks() -> bytes:
    """Return the message by which an executor asks a block manager for a block."""
    words = [struct.pack("!i", len(word)) + word for word in (b"app", b"driver", b"rdd_0_0")]
    body = bytes([0]) + words[0] + words[1] + struct.pack("!i", 1) + words[2]
    head = struct.pack("!bqi", _REQUEST, 1, len(body))
    return struct.pack("!q", 8 + len(head) + len(body)) + head + body


def test_ports_of_a_local_spark_need_a_secret_that_nobody_sees(processes: Processes) -> None:
    driver = processes.start("driver", [sys.executable, "-c", PROGRAM])
    wait_until("Spark runs", lambda: driver.read_log().endswith("}}"), _START, [driver])
    told = json.loads(driver.read_log().splitlines()[0])

    ports = listening(told["jvm"])
    lines = [words for pid in driver.tree() if (words := proc(pid, "cmdline"))]

    python = [pid for pid in driver.tree() if pid != told["jvm"]]
    assert not [port for pid in python for port in listening(pid)]
    assert set(ports.values()) <= _LOOPBACK
    assert len(ports) == 3, "of py4j, of the driver and of its block manager"
    assert exchange(told["gateway"], b"m\nd\no0\ne\n").startswith(b"!x")
    del ports[told["gateway"]]
    for port in ports:
        answer = exchange(port, open_blocks())
        assert answer[8] == _FAILURE
        assert b"Expected SaslMessage" in answer
    assert len(lines) >= 3, "driver, JVM, daemon"
    assert len(told["secrets"]) == 2, "of py4j and of Spark"
    for secret in told["secrets"]:
        assert len(secret) >= 32
        assert not [line for line in lines if secret in line]
        assert secret not in str(told["settings"])
