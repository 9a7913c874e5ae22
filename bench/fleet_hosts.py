"""A program that is many hosts at once (`bench.fleet_wire`); commands come from standard input."""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

from bench.fleet_wire import WIRES, Host, Plan, Round

_AT_A_TIME = 100  # connections that are opened side by side


def _itself(host: Host) -> Host:
    return host


async def _run(plan: Plan) -> list[Round]:
    hosts = [WIRES[plan.wire](number, plan) for number in range(plan.first, plan.until)]
    loop = asyncio.get_running_loop()
    for at in range(0, len(hosts), _AT_A_TIME):
        some = hosts[at : at + _AT_A_TIME]
        for host in some:
            await loop.create_connection(partial(_itself, host), "127.0.0.1", plan.port)
        await asyncio.gather(*(host.connected for host in some))
    print("connected", flush=True)
    begin = float(await asyncio.to_thread(sys.stdin.readline))
    for host in hosts:
        host.begin(begin)
    await asyncio.gather(*(host.done for host in hosts))
    for host in hosts:
        host.close()
    return [entry for host in hosts for entry in host.rounds]


def main() -> None:
    """Run the hosts of a plan, given as JSON, and write their rounds to a file."""
    rounds = asyncio.run(_run(Plan(**json.loads(sys.argv[1]))))
    Path(sys.argv[2]).write_text(json.dumps(rounds), "utf-8")
    print("done", flush=True)


if __name__ == "__main__":
    main()
