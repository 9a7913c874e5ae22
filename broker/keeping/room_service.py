"""The keeper of room beside a running broker: by its settings as they are now, on its own disk. Wiring only."""

import shutil
import time

from broker.keeping.room import OnFull, Policy, RoomKeeper
from broker.keeping.room_disk import Disk
from broker.keeping.room_marks import Marks
from broker.server.context import ServerContext
from broker.server.resolve import own_name, space_kept_free
from broker.settings import BrokerSettings
from broker.settings_room import RoomSettings

__all__ = ["keep_room", "minds_disk", "policy_of"]


def policy_of(settings: RoomSettings) -> Policy:
    """Return what the keeper goes by."""
    return Policy(OnFull(settings.on_full), Marks(settings.high_water, settings.low_water))


async def keep_room(context: ServerContext) -> None:
    """Keep room in the stream of a broker that is ready, until cancelled."""
    keeper = RoomKeeper(
        context.connection,
        context.folder,
        own_name(context.settings),
        lambda: policy_of(context.settings),
        time.time_ns,
        lambda: _disk(context),
    )
    context.report_parts["room"] = lambda: keeper.report.as_json()
    await keeper.run()


def minds_disk(settings: BrokerSettings) -> bool:
    """Whether the stream's limit follows the disk.

    Not where somebody says how much there is to be filled, and has seen to the rest. Nor where another server may lead
    soon, on a disk of its own, and would drop lines for the sake of a limit that is ours.
    """
    drops = OnFull(settings.on_full) is OnFull.DROP_OLDEST
    is_told = settings.max_store is not None and settings.reserve is None
    return not is_told and not (settings.cluster and drops)


def _disk(context: ServerContext) -> Disk | None:
    settings = context.settings
    if not minds_disk(settings):
        return None
    usage = shutil.disk_usage(context.folder)
    return Disk(usage.free, space_kept_free(settings, usage.total))
