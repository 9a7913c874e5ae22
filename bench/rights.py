"""What permissions and separate accounts cost: the same rounds and pulls by a user without limits, in the account of the stream, and by a host and a receiver.

Both on one server, in turns, so that the machine's moods fall on either. Rounds are messages with the sequence that
they expect, as a shipper's are; pulls are those of a receiver, acknowledged once.
"""

import asyncio
import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

import bench.ports
from bench.cpu import cpu_seconds
from bench.processes import Process, Processes, wait_until
from bench.pulls import pull
from bench.table import table
from broker.auth.accounts import accounts_of
from broker.auth.store import Credential, CredentialKind
from broker.client.access import Access
from broker.client.answer import answer_of, stored_at
from broker.client.connection import Connection
from broker.client.nkey import new_seed, user_key
from broker.provision.apply import apply
from broker.server.conf_accounts import render_accounts
from broker.topology import Topology
from broker.wire.message import Origin, Section, Span, encode_origin
from broker.wire.streams import STREAM
from broker.wire.subjects import inbox_of

__all__ = ["Cost", "main", "measure"]

_OPEN, _HOST, _RECEIVER = "logbroker", "web01", "r0"
_SUBJECT = "logs.p0.web01"
_MB = 1e6
_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
_NOTE = """\
Ratios are those of host and receiver to a user in the account of the stream, medians over the runs; CPU is nats-server's,
seconds per GB. Rounds: one message each, with `sync_interval: always`; pulls: 16 MiB each, acknowledged."""


@dataclass(frozen=True, slots=True)
class Case:
    """Rounds of so many bytes."""

    name: str
    size: int


_CASES = (
    Case("16 KiB", 16_384),
    Case("256 KiB", 262_144),
    Case("2 MiB", 2_097_152),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What `size` bytes took of `who`: seconds and nats-server's CPU seconds, to publish and to pull."""

    case: str
    who: str
    size: int
    publish: float
    publish_cpu: float
    pull: float
    pull_cpu: float


def measure(
    folder: Path, processes: Processes, cases: Sequence[Case], size: int, runs: int
) -> list[Cost]:
    """Run cases `runs` times with about `size` bytes each, in a folder of its own."""
    server, port = _start(folder, processes)
    return asyncio.run(_Bench(server, port).all(cases, size, runs))


def _start(folder: Path, processes: Processes) -> tuple[Process, int]:
    port, path = bench.ports.free_port(), folder / "rights.conf"
    credentials = (
        Credential(kind=CredentialKind.HOST, name=_HOST, nkey=_key(_HOST), since=_SINCE),
        Credential(
            kind=CredentialKind.RECEIVER,
            name=_RECEIVER,
            nkey=_key(_RECEIVER),
            since=_SINCE,
            partitions=(0,),
        ),
    )
    lines = [
        f'listen: "127.0.0.1:{port}"',
        "max_payload: 8388608",
        f'jetstream {{ store_dir: "{folder}/store", sync_interval: always',
        "  limits { max_request_batch: 10000 } }",
        "feature_flags { js_ack_fc_v2: false }",
        *render_accounts(accounts_of(credentials, _key(_OPEN), _SINCE)),
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    binary = Path(sys.executable).with_name("nats-server")
    server = processes.start("nats-server", [binary, "-c", path])
    wait_until("is ready", lambda: "Server is ready" in server.said(), 20, [server])
    return server, port


def _seed(name: str) -> str:
    return new_seed(hashlib.sha256(name.encode()).digest())


def _key(name: str) -> str:
    return user_key(_seed(name)).public


class _Bench:
    def __init__(self, server: Process, port: int) -> None:
        self._server = server
        self._url = f"nats://127.0.0.1:{port}"

    async def all(self, cases: Sequence[Case], size: int, runs: int) -> list[Cost]:
        admin = self._connect(_OPEN)
        await apply(admin, Topology(partitions=1, max_bytes=-1))
        found = [
            await self._one(admin, case, pair, size)
            for _ in range(runs)
            for case in cases
            for pair in ((_OPEN, _OPEN), (_HOST, _RECEIVER))
        ]
        await admin.close()
        return found

    def _connect(self, who: str) -> Connection:
        access = Access(nkey_seed=_seed(who))
        return Connection([self._url], f"bench {who}", (inbox_of(who),), access)

    async def _one(self, admin: Connection, case: Case, pair: tuple[str, str], size: int) -> Cost:
        await admin.api(f"STREAM.PURGE.{STREAM}")
        await admin.api(f"CONSUMER.RESET.{STREAM}.receiver-p0", {"seq": 1})
        rounds = max(1, size // case.size)
        sender, receiver = (self._connect(who) for who in pair)
        publish = await self._timed(_publish(sender, case, rounds))
        pulled = await self._timed(pull(receiver, rounds))
        await sender.close()
        await receiver.close()
        return Cost(case.name, pair[0], rounds * case.size, *publish, *pulled)

    async def _timed(self, call: Awaitable[object]) -> tuple[float, float]:
        cpu, began = cpu_seconds(self._server), time.monotonic()
        await call
        return time.monotonic() - began, cpu_seconds(self._server) - cpu


async def _publish(connection: Connection, case: Case, rounds: int) -> None:
    payload = os.urandom(case.size)
    newest = await connection.call(f"DIRECT.GET.{STREAM}.{_SUBJECT}")
    expected = int((newest.headers or {}).get("Nats-Sequence", 0))
    section = Section("/var/log/app.log", Span("1-1", 0, case.size), case.size, 1)
    headers = encode_origin(Origin("1-00000001", 1, (section,)))
    for _ in range(rounds):
        headers["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        answer = await connection.request(_SUBJECT, payload, headers, 60)
        expected = stored_at(answer_of(answer.data))


def _show(costs: list[Cost]) -> str:
    rows = []
    for case in dict.fromkeys(cost.case for cost in costs):
        free, bound = (
            [cost for cost in costs if (cost.case, cost.who) == (case, who)]
            for who in (_OPEN, _HOST)
        )
        rows.append([case, *_cells(free, bound, "publish"), *_cells(free, bound, "pull")])
    heads = ("publish MB/s", "by a host", "ratio", "CPU", "by a host")
    others = ("pull MB/s", "by a receiver", "ratio", "CPU", "by a receiver")
    return table(["", *heads, *others], rows)


def _cells(free: list[Cost], bound: list[Cost], what: str) -> list[str]:
    rates = [_median(costs, lambda c: c.size / _MB / getattr(c, what)) for costs in (free, bound)]
    cpu = [
        _median(costs, lambda c: getattr(c, f"{what}_cpu") / c.size * 1e9)
        for costs in (free, bound)
    ]
    return [
        *(f"{rate:.0f}" for rate in rates),
        f"{rates[1] / rates[0]:.2f}",
        *(f"{used:.1f}" for used in cpu),
    ]


def _median(costs: list[Cost], of: Callable[[Cost], float]) -> float:
    return statistics.median(map(of, costs))


@click.command()
@click.option("--size", default=100, show_default=True, help="MB of each case and run.")
@click.option("--runs", default=5, show_default=True)
@click.option("--case", "names", multiple=True, type=click.Choice([c.name for c in _CASES]))
def main(size: int, runs: int, names: tuple[str, ...]) -> None:
    """Measure what permissions and separate accounts cost to publish and to pull."""
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    cases = [case for case in _CASES if case.name in (names or {one.name for one in _CASES})]
    with tempfile.TemporaryDirectory(prefix="logship-rights-") as name:
        folder = Path(name)
        with Processes(folder) as processes:
            print(_show(measure(folder, processes, cases, size * 1_000_000, runs)))
    print(_NOTE)


if __name__ == "__main__":
    main()
