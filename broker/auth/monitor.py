"""What a monitor may do: read everything and change nothing. It stands in an account of its own, as hosts and receivers do.

A monitor reads streams through consumers that only it can make: their names are listed in its rights, since a right to
make, pull from or remove any consumer would be one to disturb receivers.
"""

from broker.wire.subjects import reader_names

__all__ = ["BATCHES", "HEARD", "READS", "SERVER_QUESTIONS", "monitor_calls"]

READS = (
    "INFO",
    "STREAM.NAMES",
    "STREAM.LIST",
    "STREAM.INFO.*",
    "STREAM.MSG.GET.*",
    "DIRECT.GET.*.>",
    "CONSUMER.NAMES.*",
    "CONSUMER.LIST.*",
    "CONSUMER.INFO.*.*",
)
"""Calls of the JetStream API that change nothing, with one answer."""

BATCHES = ("DIRECT.GET.*",)
"""The same with several answers."""

HEARD = ("$SYS.ACCOUNT.>", "$SYS.SERVER.>")
"""Events of the server, which admins and monitors may hear."""

SERVER_QUESTIONS = tuple(
    f"$SYS.REQ.SERVER.PING.{question}"
    for question in (
        *("VARZ", "CONNZ", "JSZ", "HEALTHZ", "ACCOUNTZ"),
        *("STATSZ", "SUBSZ", "ROUTEZ", "LEAFZ", "IDZ"),
    )
)
"""Questions about the server that change nothing about it, which admins and monitors may ask."""


def monitor_calls(own: str) -> tuple[str, ...]:
    """Return the calls of the JetStream API of the monitor whose own token is `own`."""
    return (
        *READS,
        *BATCHES,
        *(
            f"CONSUMER.{call}.*.{name}{rest}"
            for name in reader_names(own)
            for call, rest in (("CREATE", ""), ("CREATE", ".>"), ("MSG.NEXT", ""), ("DELETE", ""))
        ),
    )
