"""A program that is many hosts at once (`bench.fleet_wire`), by a plan in JSON.

They write from the monotonic seconds on that come in a file; their rounds go into another.
"""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

from bench.fleet_wire import WIRES, Host, Plan, Round

CONNECTED = "connected"
"""What it prints when every host has a connection."""
_AT_A_TIME = 100  # connections that are opened side by side


def _itself(host: Host) -> Host:
    return host


async def _run(plan: Plan, begin: Path) -> list[Round]:
    hosts = [WIRES[plan.wire](number, plan) for number in range(plan.first, plan.until)]
    loop = asyncio.get_running_loop()
    for at in range(0, len(hosts), _AT_A_TIME):
        some = hosts[at : at + _AT_A_TIME]
        for host in some:
            await loop.create_connection(partial(_itself, host), "127.0.0.1", plan.port)
        await asyncio.gather(*(host.connected for host in some))
    print(CONNECTED, flush=True)
    while not begin.exists():  # noqa: ASYNC110, ASYNC240 - another program makes it
        await asyncio.sleep(0.1)
    began = float(begin.read_text("utf-8"))  # noqa: ASYNC240 - before anything is timed
    for host in hosts:
        host.begin(began)
    await asyncio.gather(*(host.done for host in hosts))
    for host in hosts:
        host.close()
    return [entry for host in hosts for entry in host.rounds]


def main() -> None:
    """Run the hosts: the plan, the file for rounds, and that of the begin are the arguments."""
    plan, rounds, begin = sys.argv[1:]
    done = asyncio.run(_run(Plan(**json.loads(plan)), Path(begin)))
    Path(rounds).write_text(json.dumps(done), "utf-8")


if __name__ == "__main__":
    main()
