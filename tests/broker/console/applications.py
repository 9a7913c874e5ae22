"""A small fleet's applications: what they write in an hour, with an incident and a silent host."""

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

_PATHS = ("/", "/cart", "/api/orders", "/api/users/me", "/static/app.css", "/search?q=lamp")
_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
_TRACE = (
    "java.sql.SQLTransientConnectionException: connection is not available after 30000ms\n"
    "\tat com.zaxxer.hikari.pool.HikariPool.getConnection(HikariPool.java:197)\n"
    "\tat com.example.orders.OrderStore.load(OrderStore.java:88)\n"
    "\tat com.example.orders.OrderService.find(OrderService.java:41)"
)
Application = Callable[[random.Random, datetime, bool], str]
"""Writes one entry at a time of the day; whether the database is away."""


def _access(chance: random.Random, now: datetime, is_away: bool) -> str:
    status = chance.choices((200, 304, 404, 502), (80, 12, 2, 40 if is_away else 0.1))[0]
    size, path = chance.randrange(180, 60_000), chance.choice(_PATHS)
    address = f"203.0.113.{chance.randrange(1, 250)}"
    return (
        f"{address} - - [{now:%d/%b/%Y:%H:%M:%S +0000}] "
        f'"GET {path} HTTP/1.1" {status} {size} "https://shop.example.net/" "{_AGENT}"'
    )


def _web_error(chance: random.Random, now: datetime, is_away: bool) -> str:
    what = "upstream timed out (110: Connection timed out)" if is_away else "limiting requests"
    level = "error" if is_away else "warn"
    number = chance.randrange(10_000, 99_000)
    path = chance.choice(_PATHS)
    return (
        f"{now:%Y/%m/%d %H:%M:%S} [{level}] 812#812: *{number} {what} while reading response "
        f'header from upstream, client: 203.0.113.7, request: "GET {path} HTTP/1.1", '
        'upstream: "http://10.0.4.11:8080", host: "shop.example.net"'
    )


def _api(chance: random.Random, now: datetime, is_away: bool) -> str:
    level = "error" if is_away and chance.random() < 0.7 else "info"
    level = "warning" if chance.random() < 0.02 else level
    text = {
        "info": f"order {chance.randrange(10_000, 99_999)} stored",
        "warning": "slow query: orders by customer",
        "error": "no connection to db01:5432",
    }[level]
    return json.dumps(
        {
            "time": f"{now:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
            "level": level,
            "logger": "orders",
            "message": text,
            "took_ms": chance.randrange(2, 90) * (40 if level != "info" else 1),
        }
    )


def _worker(chance: random.Random, now: datetime, is_away: bool) -> str:
    head = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}"
    if is_away and chance.random() < 0.3:
        return f"{head} ERROR [worker-{chance.randrange(4)}] OrderService - job failed\n{_TRACE}"
    return f"{head} INFO [worker-{chance.randrange(4)}] OrderService - job done in 41 ms"


def _database(chance: random.Random, now: datetime, is_away: bool) -> str:
    texts = (
        "LOG:  checkpoint complete: wrote 412 buffers (2.5%); write=41.2 s, sync=0.01 s",
        'LOG:  automatic vacuum of table "shop.public.orders": index scans: 1',
        f"LOG:  duration: {chance.randrange(200, 900)}.118 ms  statement: SELECT * FROM orders",
    )
    bad = "FATAL:  remaining connection slots are reserved for roles with SUPERUSER"
    text = bad if is_away else chance.choice(texts)
    return f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03d} UTC [2211] {text}"


def _syslog(chance: random.Random, now: datetime, is_away: bool) -> str:
    priority, text = chance.choice(
        (
            (22, "postfix/smtpd[402]: connect from mail.example.org[198.51.100.9]"),
            (22, "postfix/qmgr[88]: 4F2A11: removed"),
            (86, "sshd[7120]: Accepted publickey for deploy from 10.0.0.4 port 51822"),
            (30, "systemd[1]: Started Session 4512 of user deploy."),
            (84 if chance.random() < 0.2 else 86, "sudo: deploy : TTY=pts/0 ; COMMAND=/bin/ls"),
        )
    )
    return f"<{priority}>{now:%b %d %H:%M:%S} {text}"


FILES: Mapping[str, tuple[tuple[str, Application, float], ...]] = {
    **{
        f"web{number:02d}.example.net": (
            ("nginx/access.log", _access, 3.0),
            ("nginx/error.log", _web_error, 0.03),
        )
        for number in range(1, 5)
    },
    "api01": (("orders.json", _api, 2.5),),
    "api02": (("orders.json", _api, 2.5),),
    "worker01": (("orders/worker.log", _worker, 1.0),),
    "db01": (("postgresql-17.log", _database, 0.6),),
    "db02": (("postgresql-17.log", _database, 0.3),),
    "mail01": (("mail.log", _syslog, 0.8),),
    "bastion": (("auth.log", _syslog, 0.2),),
    "backup01": (("syslog", _syslog, 0.3),),
}
"""By host: its files, what is written there, and about how many entries a second."""
SILENT = "backup01"
"""Writes nothing after two thirds of the time."""


def write(seed: int, passed: float, seconds: float) -> Iterator[tuple[str, str, str]]:
    """Yield host, file and text of what is written in some seconds.

    `passed` is the share of the time that has passed, in `[0, 1)`: the database is away for a
    while after three fifths of it.
    """
    chance = random.Random(seed)
    is_away = 0.60 < passed < 0.67
    load = 1 + 0.5 * math.sin(passed * 7) + 0.2 * chance.random()
    for host, files in FILES.items():
        if host == SILENT and passed > 0.66:
            continue
        for file, application, rate in files:
            expected = rate * load * seconds * (5 if is_away and file.endswith("error.log") else 1)
            entries = int(expected) + (chance.random() < expected % 1)
            now = datetime.now(UTC)  # noqa: TID251 - applications write this machine's time
            text = "".join(f"{application(chance, now, is_away)}\n" for _ in range(entries))
            if text:
                yield host, file, text
