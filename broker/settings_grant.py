"""The settings of who gets in at the broker, beside the credential store itself."""

from typing import Annotated, ClassVar

from pydantic import Field

from broker.app.configuration import ProgramSettings
from broker.auth.accounts import AccountLimits

__all__ = ["GrantSettings"]

_HOST_SUBSCRIPTIONS = 100  # a shipper has a handful
_RECEIVER_SUBSCRIPTIONS = 10_000  # and a receiver some for each partition
_MONITORS = AccountLimits(connections=1000, subscriptions=1000)
Connections = Annotated[int, Field(ge=1, le=2**31 - 1)]


class GrantSettings(ProgramSettings):
    """How much those who get in may take."""

    section: ClassVar[str] = "Limits"

    host_connections: Connections = Field(
        50_000,
        description="Most connections of all hosts together; what is left of nats-server's 65536 is for others.",
        json_schema_extra={"file_only": True, "metavar": "N"},
    )
    receiver_connections: Connections = Field(
        10_000,
        description="Most connections of all receivers together; one has a few, and some for each of Spark's cores.",
        json_schema_extra={"file_only": True, "metavar": "N"},
    )

    @property
    def host_limits(self) -> AccountLimits:
        """What hosts may take."""
        return AccountLimits(self.host_connections, _HOST_SUBSCRIPTIONS)

    @property
    def receiver_limits(self) -> AccountLimits:
        """What receivers may take."""
        return AccountLimits(self.receiver_connections, _RECEIVER_SUBSCRIPTIONS)

    @property
    def monitor_limits(self) -> AccountLimits:
        """What monitors may take."""
        return _MONITORS
