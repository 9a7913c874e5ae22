"""How soon after reading its rounds are acknowledged, as a shipper's own histogram tells."""

import re
import urllib.request
from collections import Counter

__all__ = ["acks", "share_within"]

_BUCKET = re.compile(r'logshipper_ack_latency_seconds_bucket\{[^}]*le="([^"]+)"[^}]*\} (\S+)')


def acks(address: str) -> Counter[float]:
    """Return how many rounds were acknowledged within so many seconds, by the shipper that listens at `address`."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return Counter({float(bound): int(float(count)) for bound, count in _BUCKET.findall(text)})


def share_within(seconds: float, before: Counter[float], after: Counter[float]) -> float:
    """Return which share of the rounds between two readings took at most so long; `seconds` is a bound of the histogram."""
    rounds = after[float("inf")] - before[float("inf")]
    return (after[seconds] - before[seconds]) / rounds
