"""Asks a broker what a plan would delete there: how many messages, and from when. Changes nothing."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

from broker.app.sizes import format_size
from broker.client.connection import Connection, Rejected
from broker.provision.deletion import Cut, Loss, Question, questions
from broker.provision.steps import Plan

__all__ = ["weigh"]

_LOOKED_AT = (
    5 * 10**9
)  # nanoseconds that a consumer for counting stays where it could not be removed


async def weigh(connection: Connection, made: Plan) -> tuple[Loss, ...]:
    """Return what the steps of a plan would delete now; raises `Rejected`, `ConnectionLost`."""
    asked = questions(made)
    answers = await asyncio.gather(*(_answer(connection, question) for question in asked))
    return tuple(
        Loss(question.step, question.fields, words)
        for question, words in zip(asked, answers, strict=True)
        if words
    )


async def _answer(connection: Connection, question: Question) -> str:
    if question.cut is Cut.POSITION:
        return await _position(connection, question)
    info = await connection.api(f"STREAM.INFO.{question.step.name}")
    if not info["state"]["messages"]:
        return ""
    match question.cut:
        case Cut.AGE:
            return await _too_old(connection, question, info)
        case Cut.PER_SUBJECT:
            return await _too_many(connection, question)
        case _:
            return _beyond(question, info["state"])


def _beyond(question: Question, state: dict[str, Any]) -> str:
    held = state["messages"]
    match question.cut:
        case Cut.MESSAGES:
            return _oldest(state, held - question.limit, "")
        case Cut.BYTES:
            over = state["bytes"] - question.limit
            return _oldest(state, -(-over * held // state["bytes"]), f"{format_size(over)}, about ")
        case _:
            return f"deletes whatever no consumer waits for, of {held} messages"


async def _position(connection: Connection, question: Question) -> str:
    step = question.step
    info = await connection.api(f"CONSUMER.INFO.{step.stream}.{step.name}")
    reached = int(info["delivered"]["stream_seq"])
    return f"forgets that it has come to sequence {reached}" if reached else ""


async def _too_old(connection: Connection, question: Question, info: dict[str, Any]) -> str:
    stream, state = question.step.name, info["state"]
    # the server's own clock decides what expires
    now = datetime.fromisoformat(info["ts"])
    begin = now - timedelta(microseconds=question.limit // 1000)
    if datetime.fromisoformat(state["first_ts"]) >= begin:
        return ""
    config = {
        "deliver_policy": "by_start_time",
        "opt_start_time": begin.isoformat(),
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _LOOKED_AT,
    }
    try:
        made = await connection.api(
            f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}
        )
    except Rejected as error:  # as many consumers as there may be, for example
        return f"deletes what is from before {begin:%Y-%m-%dT%H:%M:%SZ}, uncounted: {error.description}"
    try:
        return _oldest(state, state["messages"] - int(made["num_pending"]), "")
    finally:
        await connection.api(f"CONSUMER.DELETE.{stream}.{made['name']}")


async def _too_many(connection: Connection, question: Question) -> str:
    over: list[int] = []
    seen = 0
    while True:
        page = await connection.api(
            f"STREAM.INFO.{question.step.name}", {"subjects_filter": ">", "offset": seen}
        )
        counts = (page["state"].get("subjects") or {}).values()
        over += [count - question.limit for count in counts if count > question.limit]
        seen += len(counts)
        if not counts or seen >= page.get("total", 0):
            break
    return f"deletes {sum(over)} messages, the oldest of {len(over)} subjects" if over else ""


def _oldest(state: dict[str, Any], count: int, about: str) -> str:
    if count <= 0:
        return ""
    first = state["first_ts"][:19]
    return f"deletes {about}{count} of {state['messages']} messages, the oldest, from {first}Z on"
