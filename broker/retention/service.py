"""The retention worker beside a running broker: by its settings as they are now, on its own disk. Wiring only."""

import shutil

from broker.retention.water import Disk, Water
from broker.retention.worker import StreamRetention
from broker.server.context import ServerContext
from broker.server.resolve import own_name, space_kept_free

__all__ = ["retain"]


async def retain(context: ServerContext) -> None:
    """Keep space in the streams of a broker that is ready, until cancelled."""
    worker = StreamRetention(
        context.connection,
        own_name(context.settings),
        lambda: context.resolved.topology.names,
        lambda: Water(context.settings.high_water, context.settings.low_water),
        lambda: _disk(context),
    )
    context.report_parts["retention"] = worker.as_json
    await worker.run()


def _disk(context: ServerContext) -> Disk | None:
    """Measure the disk; None where a person has said by --max-store alone how much the store may take."""
    settings = context.settings
    if settings.max_store is not None and settings.reserve is None:
        return None
    usage = shutil.disk_usage(context.folder)
    return Disk(usage.free, space_kept_free(settings, usage.total))
