"""Believable log lines, seeded; each begins with the tag of its file and a growing number."""

import json
import random
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faker import Faker

_POOL = 300
_LOCALES = ["en_US", "de_DE", "fr_FR", "ja_JP", "ru_RU", "el_GR"]


class LogLines:
    """The endless lines of one log file; `tag` names the file and begins each line."""

    def __init__(self, tag: str, seed: int) -> None:
        """Begin at line 0; the same tag and seed give the same lines."""
        self._tag = tag.encode()
        self._chance = random.Random(f"{tag} {seed}")
        self._pool = _pool()
        self._next = 0

    def take(self, lines: int) -> bytes:
        """Return at least `lines` more lines; an entry of several lines is never cut."""
        until = self._next + lines
        parts: list[bytes] = []
        while self._next < until:
            for text in self._chance.choice(self._pool):
                parts.append(b"%b %08d %b\n" % (self._tag, self._next, text))
                self._next += 1
        return b"".join(parts)


@lru_cache(maxsize=1)
def _pool() -> tuple[tuple[bytes, ...], ...]:
    """Return entries to choose from; made once, since faker takes its time, its import too."""
    from faker import Faker

    chance = random.Random(20)
    faker = Faker()
    faker.seed_instance(20)
    world = Faker(_LOCALES)
    world.seed_instance(20)
    entries = [
        *((access_line(faker, chance),) for _ in range(_POOL)),
        *((_json(world, chance),) for _ in range(_POOL // 4)),
        *((f"INFO login of {world.name()}, {world.city()}",) for _ in range(_POOL // 4)),
        *(_trace(faker, world, chance) for _ in range(_POOL // 10)),
    ]
    return tuple(tuple(line.encode() for line in entry) for entry in entries)


def access_line(faker: "Faker", chance: random.Random) -> str:
    """Return what a web server writes of a request, without a time."""
    return (
        f'{faker.ipv4_public()} - - "{chance.choice(("GET", "GET", "GET", "POST"))} '
        f'/{faker.uri_path(2)}?page={chance.randrange(90)} HTTP/1.1" '
        f"{chance.choice((200, 200, 200, 200, 301, 404, 500))} {chance.randrange(100, 90_000)} "
        f'"{faker.uri()}" "{faker.user_agent()}"'
    )


def _json(world: "Faker", chance: random.Random) -> str:
    entry = {
        "level": chance.choice(("info", "info", "warning", "error")),
        "user": world.name(),
        "city": world.city(),
        "took_ms": chance.randrange(4000),
        "message": world.sentence(nb_words=8),
    }
    return json.dumps(entry, ensure_ascii=False)


def _trace(faker: "Faker", world: "Faker", chance: random.Random) -> tuple[str, ...]:
    frames = [
        line
        for _ in range(chance.randrange(2, 6))
        for line in (
            f'  File "{faker.file_path(depth=3, extension="py")}", line {chance.randrange(900)}',
            f"    {faker.word()} = {faker.word()}({faker.word()})",
        )
    ]
    error = f"{chance.choice(('ValueError', 'KeyError', 'OSError'))}: {world.name()}"
    return ("ERROR Traceback (most recent call last):", *frames, error, "")
