"""Subjects that each client may not publish or subscribe to, beside those in `rights`."""

import hashlib

from broker.auth.permissions import API
from nats_logship.wire.streams import positions_key
from tests import secured

LIKE_A_HASH = hashlib.sha256(b"web01.example.net").hexdigest()[:32]
"""A host whose name is the hash of another host's name."""

HOSTS = ("web01", "web02", "web01.example.net", LIKE_A_HASH)

IDENTITIES = (
    *map(secured.host, HOSTS),
    secured.receiver("r0", 0),
    secured.receiver("r1", 1),
    secured.receiver("everything"),
    secured.admin("ops"),
    secured.monitor("watch"),
    secured.monitor("other"),
)

OTHER_HOSTS = (
    *(f"logs.p0.{host}" for host in ("WEB01", "web", "web01.example.net", "*", ">")),
    *("logs.p1.web02", "logs.web01", "logs.>"),
    f"{API}.DIRECT.GET.LOGS.logs.>",
    *(f"$KV.LOGS_POSITIONS.{key}" for key in ("WEB01", "web01.x", "web01x", "*", ">")),
    f"$KV.LOGS_POSITIONS.{positions_key('web01.example.net')}",
    f"{API}.DIRECT.GET.KV_LOGS_POSITIONS.$KV.LOGS_POSITIONS.*",
    f"{API}.DIRECT.GET.KV_LOGS_POSITIONS.$KV.LOGS_POSITIONS.>",
    f"{API}.CONSUMER.CREATE.KV_LOGS_POSITIONS.shipper-web01.$KV.LOGS_POSITIONS.web01",
    f"{API}.CONSUMER.CREATE.LOGS",
    f"{API}.CONSUMER.CREATE.LOGS.shipper-web01",
    *(f"{API}.CONSUMER.CREATE.LOGS.shipper-web01.{one}" for one in ("logs.p0.web02", "logs.>")),
    *(f"{API}.CONSUMER.CREATE.LOGS.{one}.logs.*.web01" for one in ("shipper-web02", "receiver-p0")),
    f"{API}.CONSUMER.DURABLE.CREATE.LOGS.shipper-web01",
    "_INBOX_web02.x",
    "_INBOX.x",
)

STREAMS = tuple(
    f"{prefix}.{call}"
    for prefix in (API, "$JS.API")
    for call in ("STREAM.CREATE.MINE", "STREAM.SNAPSHOT.LOGS", "STREAM.RESTORE.MINE")
)

SYSTEM = (
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.SERVER.PING.CONNZ",
    "$SYS.REQ.ACCOUNT.LOGS.CONNS",
    "$SYS.REQ.CLAIMS.UPDATE",
    "$SYS.ACCOUNT.LOGS.CONNECT",
    "$LDS.x",
    "$NRG.x",
    "_R_.x",
    "logship.broker",
    "logship.credentials",
)

OF_NO_RECEIVER = ("logship.leave.r0.x", "logship.receiver.r0.x")

OTHER_PARTITIONS = (
    "$KV.LOGS_OFFSETS.>",
    f"{API}.DIRECT.GET.KV_LOGS_OFFSETS",
    f"{API}.CONSUMER.CREATE.LOGS",
    f"{API}.CONSUMER.CREATE.LOGS.receiver-p0",
    f"{API}.CONSUMER.CREATE.LOGS.receiver-p0.logs.>",
    *(f"{API}.CONSUMER.CREATE.LOGS.{one}.logs.p1.>" for one in ("receiver-p0", "wake-p0-0")),
    *(
        f"{API}.CONSUMER.CREATE.LOGS.{one}.logs.p0.>"
        for one in ("receiver-p1", "wake-p1-0", "mine")
    ),
    "$JS.ACK.LOGS.>",
    "logship.leave.r1.x",
    "_INBOX_r1.x",
)

LINES = ("logs.p0.web01", "logs.p0.*", "logs.>")

POSITIONS = ("$KV.LOGS_POSITIONS.>", f"{API}.DIRECT.GET.KV_LOGS_POSITIONS")

CHANGES = (
    *LINES,
    *STREAMS,
    *(
        f"{prefix}.CONSUMER.{call}"
        for prefix in (API, "$JS.API")
        for call in (
            "CREATE.LOGS",
            "CREATE.LOGS.mine",
            "DURABLE.CREATE.LOGS.reader-watch-0",
            "UNPIN.LOGS.receiver-p0",
            "LEADER.STEPDOWN.LOGS.receiver-p0",
        )
    ),
    "logship.leave.r0.x",
    "logship.consumer.LOGS.mine",
    "_INBOX_web01.x",
    "_INBOX.x",
)

WIDE = (">", "*", "*.>", "_INBOX.>", "_R_.>", "logs.>", "$JS.>", "$KV.>", "$SYS.>", "logship.>")

PUBLISHED = {
    "web01": (*OTHER_HOSTS, *OF_NO_RECEIVER, *STREAMS, *SYSTEM),
    "r0": (*OTHER_PARTITIONS, *POSITIONS, *STREAMS, *SYSTEM),
    "everything": (*LINES, *POSITIONS, *STREAMS, *SYSTEM),
    "watch": (
        *CHANGES,
        *(one for one in SYSTEM if one not in {"$SYS.REQ.SERVER.PING.CONNZ", "logship.broker"}),
    ),
}

SUBSCRIBED = {
    "web01": (
        *WIDE,
        "_INBOX_web02.>",
        "_INBOX_*.>",
        "_INBOX_web01*.>",
        "logs.*.web01",
        "$KV.LOGS_POSITIONS.web01",
        "$KV.LOGS_CONFIG.*",
        "$KV.LOGS_CONFIG.>",
    ),
    "r0": (*WIDE, "_INBOX_r1.>", "logship.receiver.r1.*", "logship.receiver.>", "logship.leave.>"),
    "everything": (*WIDE, "_INBOX_r0.>", "logship.receiver.r0.*"),
    "watch": (*WIDE, "_INBOX_other.>", "logs.p0.web01", "logship.broker", "logship.receiver.r0.*"),
}
