"""The keeper of room beside a running broker: by its settings as they are now, on its own disk. Wiring only."""

import shutil
import time

from broker.keeping.room import OnFull, Policy, RoomKeeper
from broker.keeping.room_disk import Disk
from broker.keeping.room_marks import Marks
from broker.serving.conf import kept_free
from broker.serving.node import Node
from broker.serving.outfit import own_name
from broker.settings_room import RoomSettings

__all__ = ["keep_room", "policy_of"]


def policy_of(settings: RoomSettings) -> Policy:
    """Return what the keeper goes by."""
    return Policy(OnFull(settings.on_full), Marks(settings.high_water, settings.low_water))


async def keep_room(node: Node) -> None:
    """Keep room in the stream of a broker that is ready, until cancelled."""
    keeper = RoomKeeper(
        node.connection,
        node.house.folder,
        own_name(node.settings),
        lambda: policy_of(node.settings),
        time.time_ns,
        lambda: _disk(node),
    )
    node.parts["room"] = lambda: keeper.report.as_json()
    await keeper.run()


def _disk(node: Node) -> Disk | None:
    settings = node.settings
    if settings.max_store is not None and settings.reserve is None:
        return None  # whoever says how much there is to be filled has seen to the rest
    usage = shutil.disk_usage(node.house.folder)
    reserve = None if settings.reserve is None else int(settings.reserve)
    return Disk(usage.free, kept_free(usage.total, reserve))
