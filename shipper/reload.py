"""Which settings a running shipper can change when they are read again; the others wait for its next start."""

from broker.app.reload import Reload, differences
from shipper.settings import ShipperSettings

__all__ = ["reload"]

_AT_ONCE = frozenset(
    {
        "compression",
        "exclude",
        "exclude_lines",
        "file",
        "from_",
        "grace",
        "hold_deleted",
        "ignore_older",
        "include_lines",
        "log_format",
        "log_level",
        "memory",
        "round_size",
    }
)


def reload(old: ShipperSettings, new: ShipperSettings) -> Reload[ShipperSettings]:
    """Return what to do about settings that were read again."""
    standard_input = "-" in (*old.file, *new.file)
    return differences(old, new, _AT_ONCE - {"file"} if standard_input else _AT_ONCE)
