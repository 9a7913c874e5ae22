"""Spreads the hosts of a running broker over another number of partitions, while shippers and receivers go on.

What becomes of it if we die: the stream takes more subjects and has more consumers than before, which nobody uses; the
entry of the number is written last, at once. The same again does what is left.
"""

from broker.app.exits import OperatorError
from broker.client.connection import Connection
from broker.provision.apply import carry_out, look, refuse, refuse_half
from broker.provision.plan import Actual, plan_partitions
from broker.topology import Topology, mirrored_site

__all__ = ["change_partitions", "look_at_partitions"]


async def look_at_partitions(connection: Connection) -> Actual:
    """Return what is there; raises `OperatorError` where the number cannot be changed here, `Rejected`, `ConnectionLost`."""
    actual = await look(connection, Topology())
    refuse_half(actual.streams)
    expected = Topology(stream_count=len(actual.names)).streams()
    if missing := {config["name"] for config in expected} - actual.streams.keys():
        raise OperatorError(
            f"{', '.join(sorted(missing))} is not there; set it up with `logbroker apply`"
        )
    name = actual.names[0]
    if site := mirrored_site(actual.streams[name]):
        raise OperatorError(
            f"{name} here is a copy of site {site}'s, and so is the number of partitions: run `logbroker partitions` there"
        )
    return actual


async def change_partitions(connection: Connection, partitions: int) -> None:
    """Do it; raises `OperatorError` for what is refused, `Rejected`, `ConnectionLost`."""
    made = plan_partitions(partitions, await look_at_partitions(connection))
    refuse(made)
    await carry_out(connection, made)
