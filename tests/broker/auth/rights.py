"""Who may do what to which object: a row for each object, a column for each thing done to it.

`web01` is a host, `r0` a receiver of partition 0, `all` a receiver of all partitions, `watch` a
monitor, `ops` an admin and `away` a site. `-` is nobody.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """An object, and who may do each thing to it."""

    object: str
    rights: dict[str, str]


LINES = "LOGS"
OFFSETS, POSITIONS, CONFIG = (f"KV_LOGS_{name}" for name in ("OFFSETS", "POSITIONS", "CONFIG"))

STREAMS = (
    Row(
        LINES,
        {
            "info": "r0 all watch ops",
            "get": "all watch ops",  # any message
            "get several": "all watch ops",
            "copy": "away ops",
            "update": "ops",
            "delete": "ops",
            "purge": "ops",
            "delete a message": "ops",
            "read its consumers": "watch ops",
            "name its consumers": "all watch ops",
            "step down": "-",  # there is no cluster
        },
    ),
    *(
        Row(
            bucket,
            {
                "info": "all watch ops" if bucket == OFFSETS else "watch ops",
                "get": "all watch ops" if bucket == OFFSETS else "watch ops",
                "get several": "watch ops",
                "copy": "ops" if bucket == OFFSETS else "away ops",
                "update": "ops",
                "delete": "ops",
                "purge": "ops",
                "delete a message": "-",  # the stream forbids it
                "read its consumers": "watch ops",
                "step down": "-",
            },
        )
        for bucket in (OFFSETS, POSITIONS, CONFIG)
    ),
    Row("MINE", {"create": "ops"}),
)

MESSAGES = (
    Row("logs.p0.web01", {"write": "web01 ops", "read": "web01 watch ops"}),
    Row("logs.p1.web01", {"write": "web01 ops", "read": "web01 watch ops"}),
    Row("logs.p0.web02", {"write": "ops", "read": "watch ops"}),
    Row("$KV.LOGS_OFFSETS.p0", {"write": "r0 all ops", "read": "r0 all watch ops"}),
    Row("$KV.LOGS_OFFSETS.p1", {"write": "all ops", "read": "r0 all watch ops"}),
    Row("$KV.LOGS_POSITIONS.web01", {"write": "web01 ops", "read": "web01 watch ops"}),
    Row("$KV.LOGS_POSITIONS.web02", {"write": "ops", "read": "watch ops"}),
    Row("$KV.LOGS_CONFIG.partitions", {"write": "ops", "read": "web01 r0 all watch ops"}),
    Row("$KV.LOGS_CONFIG.streams", {"write": "ops", "read": "web01 r0 all watch ops"}),
    Row("$KV.LOGS_CONFIG.pause", {"write": "ops", "read": "web01 watch ops"}),
    Row("$KV.LOGS_CONFIG.interval", {"write": "ops", "read": "web01 watch ops"}),
)


def _consumer(name: str, owner: str, **other: str) -> Row:
    """Return the row of a consumer of the lines; `owner` may do all that `other` does not name."""
    mine = f"{owner} all ops".removeprefix("- ")
    kept = {
        "create": mine,
        "update": mine,
        "delete": mine,
        "pull": mine,
        "info": "all watch ops",
        "reset": "all ops",
        "pause": "ops",
        "acknowledge": "all ops",
    }
    return Row(name, kept | other)


CONSUMERS = (
    _consumer(
        "receiver-p0",
        "r0",
        delete="r0 all ops",
        info="r0 all watch ops",
        reset="r0 all ops",
        acknowledge="r0 all ops",
    ),
    _consumer("receiver-p1", "-"),
    _consumer("wake-p0-0", "r0"),
    _consumer("wake-p1-0", "-"),
    _consumer("count-p0", "r0", pull="all ops"),  # of lines of partition 1, which it only counts
    _consumer("count-p1", "-"),
    _consumer("shipper-web01", "web01"),
    _consumer("shipper-web02", "-"),
    _consumer("reader-watch-0", "watch"),
    _consumer("reader-other-0", "-"),
    _consumer("mine", "-"),
)

ACCOUNT = Row(
    "account",
    dict.fromkeys(("info", "name streams", "list streams", "ask the server"), "watch ops"),
)
