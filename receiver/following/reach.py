"""Whether the executors of a cluster see the folders that they are to write: asked at the start, before a line is touched.

Executors may come later; each task looks for itself again (`writing.place`).
"""

import socket
import time
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from broker.exits import ConfigurationError
from receiver.assignment import Place
from receiver.following.runner import cause_of
from receiver.writing.place import Elsewhere, held, is_held, look

__all__ = ["check_reach"]

_ROUNDS = 2
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
