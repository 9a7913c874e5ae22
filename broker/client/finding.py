"""Finds out where the JetStream API is for the user that a connection is: one question, and on which inbox it can be heard."""

from typing import TYPE_CHECKING

from broker.client.answer import Rejected
from broker.client.api import Api
from broker.client.denials import Denials
from broker.client.inboxes import Inboxes

if TYPE_CHECKING:
    from broker.client.connection import Connection

__all__ = ["find"]

_WHO_AM_I = "$SYS.REQ.USER.INFO"


async def find(connection: "Connection", prefix: str, inboxes: Inboxes, denials: Denials) -> Api:
    """Return the API by the prefix that is known, else by our rights; raises as `request`.

    Goes through the inboxes until answers are heard; raises `Denied` when none of them is ours. A server that does not
    tell our rights is taken for one that has the API in its usual place.
    """
    while not prefix:
        try:
            return Api.told((await connection.request(_WHO_AM_I)).data)
        except Rejected:
            if not denials.is_deaf:
                return Api()
            if (
                not inboxes.turn()
            ):  # nothing else that is asked on this client could be heard either
                raise
    return Api(prefix=prefix)
