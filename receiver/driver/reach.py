"""Whether the executors of a cluster see the folders that they are to write: asked at the start, before a line is touched.

Executors may come later; each task looks for itself again (`consume.place`).
"""

import asyncio
import socket
import time
from functools import partial

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from broker.app.exits import ConfigurationError, OperatorError
from receiver.consume.assignment import Place
from receiver.consume.place import Elsewhere, held, is_held, look
from receiver.driver.runner import cause_of

__all__ = ["check_reach", "watch"]

_ROUNDS = 2
_LOOK = 10.0  # seconds
_HELD_UP = 0.2  # seconds, so that no executor takes all questions


def check_reach(spark: SparkContext, places: tuple[Place, ...]) -> None:
    """Return when every executor that is there sees the places, and feels the driver's locks on them.

    Raises `ConfigurationError` naming the machine that does not, or saying why nothing can run there.
    """
    count = _ROUNDS * max(spark.defaultParallelism, 1)
    with held(places):
        try:
            asked = spark.parallelize(range(count), count).map(partial(_objection, places=places))
            objections = {objection for objection in asked.collect() if objection}
        except Py4JJavaError as error:
            raise ConfigurationError(
                f"the executors of {spark.master} cannot run our tasks: {cause_of(error)}"
            ) from None
    if objections:
        raise ConfigurationError("; ".join(sorted(objections)))


async def watch(spark: SparkContext, patience: float) -> None:
    """Never return; raises OperatorError when there has been no executor for `patience` seconds.

    A master that has forgotten us gives us none ever again; a new start has it know us. Where executors come and go as
    they are needed, none is no news.
    """
    if spark.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        await asyncio.Event().wait()
    loop = asyncio.get_running_loop()
    seen = loop.time()
    while loop.time() - seen < patience:
        await asyncio.sleep(min(_LOOK, patience))
        if await asyncio.to_thread(_executors, spark):
            seen = loop.time()
    raise OperatorError(
        f"{spark.master} has had no executor for us for {patience:g} s; start again"
    )


def _executors(spark: SparkContext) -> int:
    try:
        known = spark._jsc.sc().getExecutorMemoryStatus().size()
    except (Py4JError, OSError):
        return 0
    return int(known) - 1  # the driver is one of them


def _objection(_: int, places: tuple[Place, ...]) -> str:
    time.sleep(_HELD_UP)
    try:
        for place in places:
            look(place)
            if not is_held(place):
                return (
                    f"locks on {place.folder} do not reach {socket.gethostname()}; mount it with locks that all "
                    "machines share, such as NFS version 4"
                )
    except (Elsewhere, OSError) as error:
        return str(error)
    return ""
