"""From where on what is seen of a broker is wrong. A value."""

from dataclasses import dataclass, field

from broker.looking.findings import Limit

__all__ = ["Thresholds"]

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on something is wrong; times in seconds, shares in percent, rates in messages a second."""

    connect: Limit = field(default=Limit(0.5, 1.0))
    rtt: Limit = field(default=Limit(0.5, 1.0))
    lag: Limit = field(default=Limit())
    age: Limit = field(default=Limit(600.0, 3600.0))
    store: Limit = field(default=Limit(75.0, 90.0))
    silent: Limit = field(default=Limit(3600.0))
    rate: Limit = field(default=Limit(1000.0))
    validity: Limit = field(default=Limit(30 * _DAY, 7 * _DAY))
    peer_expect: int | None = None
    peer_lag: int = 200
    peer_seen: float = 10.0
