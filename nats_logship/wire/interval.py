"""The shortest interval between two small rounds of a host. Key `interval` in LOGS_CONFIG.

The value is a decimal number of seconds; 0 and no entry mean that each host chooses for itself.
`logbroker run` writes the entry again while it is in force, so that it ends with its writer.
"""

import re

from nats_logship.wire.streams import CONFIG_BUCKET

INTERVAL_KEY = "interval"
INTERVAL_SUBJECT = f"$KV.{CONFIG_BUCKET}.{INTERVAL_KEY}"
"""The subject of the key: a core NATS subscription receives each write, without a consumer."""
INTERVAL_RENEWED = 60
"""Seconds after which an entry in force is written again."""
INTERVAL_EXPIRES = 3 * INTERVAL_RENEWED
"""Seconds after the last write at which an entry is no longer in force."""
MAX_INTERVAL = 60
"""The longest interval in seconds."""

_VALUE = re.compile(rb"[0-9]{1,2}(\.[0-9]{1,3})?")


def parse_interval(value: bytes) -> float | None:
    """Return the value of the key in seconds, 0 after a deletion; None for anything else."""
    if not value:
        return 0.0
    found = float(value) if _VALUE.fullmatch(value) else MAX_INTERVAL + 1
    return found if found <= MAX_INTERVAL else None


def format_interval(seconds: float) -> bytes:
    """Return the value of the key, to the millisecond."""
    return f"{round(seconds, 3):g}".encode()
