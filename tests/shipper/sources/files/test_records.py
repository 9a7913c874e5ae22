"""Records of several lines: where a follower cuts them, and what it waits for."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from shipper.sources.block import Block
from shipper.sources.files.records import Preset, RecordRules
from tests.shipper.host import SECOND, Host
from tests.shipper.sources.files.conftest import MakeHost

RULES = RecordRules("start:^[0-9]", "end: F ", timeout=2 * SECOND, lines=20)
ONE, TWO = b"1 first\n at a\n at b\n", b"2 second\n at c\n"


async def gathered(host: Host) -> bytes:
    before = len(host.blocks)
    await host.ship()
    return b"".join(block.lines for block in host.blocks[before:])


async def test_a_record_waits_for_the_next_one_or_until_its_file_is_quiet(
    make_host: MakeHost,
) -> None:
    host = make_host(records=RULES)
    host.write("app.log", ONE[:15])

    assert await gathered(host) == b""
    host.later += SECOND
    host.write("app.log", ONE[15:] + TWO[:12])
    assert await gathered(host) == ONE
    assert 0 < host.follower.poll_in <= 2
    host.later += SECOND
    assert await gathered(host) == b""
    host.later += SECOND
    assert await gathered(host) == TWO[:9], "the unfinished line waits"
    host.write("app.log", TWO[12:])
    host.later += 2 * SECOND
    assert await gathered(host) == b""
    host.later += 2 * SECOND
    assert await gathered(host) == TWO[9:]
    assert {block.section.records for block in host.blocks} == {"start:^[0-9]"}
    assert not any(block.continues for block in host.blocks)


async def test_a_record_that_has_no_end_ends_after_so_many_lines(make_host: MakeHost) -> None:
    host = make_host(records=RULES)
    host.write("app.log", b"1\n" + b" 2\n" * 49)

    await host.ship()

    assert [block.section.lines for block in host.blocks] == [20, 20]


async def test_a_rotated_file_ends_its_record_and_the_next_file_waits_for_it(
    make_host: MakeHost,
) -> None:
    host = make_host(records=RULES)
    host.write("app.log", ONE + TWO[:9])
    assert await gathered(host) == ONE
    host.move("app.log", "app.log.1")
    host.write("app.log", TWO[9:] + ONE)
    assert await gathered(host) == b""

    host.write("app.log.1", b" late\n")
    await host.ship_out()
    assert host.shipped == ONE + TWO[:9] + b" late\n" + TWO[9:] + ONE


@pytest.mark.parametrize("form", ["start:^[0-9]", "end:^end$"])
async def test_pieces_of_a_long_record_follow_one_another_also_after_a_restart(
    make_host: MakeHost, form: str
) -> None:
    rules = RecordRules(form, timeout=2 * SECOND, lines=1000)
    long = b"1 first\n" + b" next line\n" * 40 + b"end\n"
    names = ("a.log", "b.log", "c.log")
    for kill in range(1, 12):
        host = make_host(*(f"{kill}{name}" for name in names), records=rules, block_size=100)
        host.follower.resize(100, 120, 120)
        for name in names:
            host.write(f"{kill}{name}", long + long)
        await host.scan()
        while len(host.blocks) < kill:
            host.blocks += await host.follower.gather(1)
        del host.blocks[kill:]
        await host.restart()
        host.follower.resize(100, 120, 120)
        await host.ship()
        host.later += 3 * SECOND
        await host.ship()

        assert _without_others_between(host.blocks), kill
        assert [b.continues for b in host.blocks] == [
            b.section.span.start % len(long) > 0 for b in host.blocks
        ]
        assert len(host.shipped) == 6 * len(long)


async def test_nothing_comes_between_the_pieces_of_a_line_whose_record_may_go_on(
    make_host: MakeHost,
) -> None:
    line = b"1" + b"x" * 398 + b"\n"  # the last of its pieces is as long as a block
    names = ("a.log", "b.log", "c.log")
    for kill in range(1, 12):
        own = [f"{kill}{name}" for name in names]
        host = make_host(*own, f"{kill}d.log", records=RULES, block_size=100)
        host.follower.resize(100, 100, 100)
        for name in own:
            host.write(name, line)
        await host.ship()
        host.later += 2 * SECOND
        while len(host.blocks) < kill:
            host.blocks += await host.follower.gather(1)
        await host.restart()
        host.follower.resize(100, 100, 100)
        host.write(f"{kill}d.log", TWO + ONE)
        await host.ship()
        host.later += 2 * SECOND
        await host.ship()

        assert _without_others_between(host.blocks), kill
        assert len(host.shipped) == 3 * len(line) + len(TWO + ONE)


async def test_lines_behind_a_record_that_was_waited_for_are_another_one_also_after_a_restart(
    make_host: MakeHost,
) -> None:
    for is_restarted in (False, True):
        host = make_host(f"{is_restarted}.log", records=RecordRules("start:^[0-9]", "", SECOND, 9))
        host.write(f"{is_restarted}.log", ONE)
        await host.ship()
        host.later += 2 * SECOND
        assert await gathered(host) == ONE
        if is_restarted:
            await host.restart()
        host.write(f"{is_restarted}.log", b" late\n")
        await host.ship_out()

        (late,) = host.blocks[1:]
        assert (late.lines, late.continues, late.section.rest) == (b" late\n", False, "")


@pytest.mark.parametrize("is_packed", [False, True])
async def test_nothing_comes_between_the_pieces_of_a_line_whose_file_is_truncated(
    make_host: MakeHost, *, is_packed: bool
) -> None:
    line = b"1" + b"x" * 398 + b"\n"
    for kill in range(1, 8):
        own = f"{kill}a.log"
        host = make_host(own, f"{kill}b.log", block_size=100)
        host.follower.resize(100, 100, 100)
        host.write(own, line)
        host.write(f"{kill}b.log", line)
        await host.scan()
        while len(host.blocks) < kill:
            host.blocks += await host.follower.gather(1)
        host.write(f"{own}.1", line)
        if is_packed:
            host.pack(f"{own}.1")
        os.truncate(host.folder / own, 0)
        host.write(own, b"3\n")
        assert host.follower.is_inside_line == (kill != 4)
        await host.gather()
        await host.ship_out()

        assert _without_others_between(host.blocks), kill
        assert len(host.shipped) == 2 * len(line) + 2


def _without_others_between(blocks: list[Block]) -> bool:
    files = [block.section.span.file_id for block in blocks]
    return all(
        file == before or not block.continues
        for before, file, block in zip(files, files[1:], blocks[1:], strict=False)
    )


async def test_a_long_record_of_one_of_two_files_waits_until_it_has_ended(
    make_host: MakeHost,
) -> None:
    host = make_host("a.log", "b.log", records=RecordRules("start:^[0-9]", "", 2 * SECOND, 1000))
    host.follower.resize(100, 120, 120)
    host.write("a.log", b"1 first\n" + b" next line\n" * 40)
    host.write("b.log", TWO + ONE)

    assert await gathered(host) == TWO
    host.write("a.log", b" last\n2\n")
    assert await gathered(host) == b"1 first\n" + b" next line\n" * 40 + b" last\n"


CRI = b"2026-01-01T00:00:00.1Z stdout P one \n2026-01-01T00:00:00.2Z stdout F two\n"
OTHER = b"2026-01-01T00:00:00.1Z stderr F err\n"
ID = "0d" * 32
LAYOUTS = (
    "host/var/log/pods/default_web_1-f/app/0.log",
    "data/log/pods/default_web_1-f/app/12.log.20260109-071108",
    f"docker/containers/{ID}/{ID}-json.log",
    f"var/lib/docker/100000.100000/containers/{ID}/{ID}-json.log.1",
)
DOCKER = b'{"log":"one \\\\n","stream":"stdout"}\n{"log":"two \\\\\\n","stream":"stdout"}\n'


@pytest.mark.parametrize(
    ("first", "rest"),
    [
        pytest.param(CRI, CRI[:37], id="CRI"),
        pytest.param(DOCKER, DOCKER[:36], id="Docker"),
        pytest.param(CRI[:37] + OTHER, CRI[:37], id="a line of the other output ends a record"),
    ],
)
@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("real", LAYOUTS)
async def test_the_pieces_of_a_containers_line_are_a_record_wherever_its_folder_is(
    tmp_path: Path, make_host: MakeHost, first: bytes, rest: bytes, real: str, is_linked: bool
) -> None:
    log = tmp_path / real
    log.parent.mkdir(parents=True)
    (tmp_path / "web.log").symlink_to(log)
    rules = RecordRules.of("", None, timedelta(seconds=2), 500)
    host = make_host("web.log" if is_linked else real, records=rules)
    log.write_bytes(first + rest)

    assert await gathered(host) == first
    host.later += 3 * SECOND
    assert await gathered(host) == rest


async def test_a_start_expression_does_not_separate_the_pieces_of_a_line(
    make_host: MakeHost,
) -> None:
    host = make_host(records=RecordRules("start:^.", timeout=SECOND, lines=500))
    host.write("app.log", CRI + CRI[:37])

    assert await gathered(host) == CRI


PYTHON = b"""2026-11-29 08:00:00,123 ERROR request failed
Traceback (most recent call last):
  File "app.py", line 3, in <module>
    1 / 0
    ~~^~~
ZeroDivisionError: division by zero

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "app.py", line 5, in <module>
    raise ValueError from None
ValueError
"""
JAVA = b"""2026-11-29 08:00:00.123 ERROR 1 --- [main] c.e.App : failed
java.lang.IllegalStateException: no order
\tat com.example.App.main(App.java:5) ~[classes/:na]
Caused by: java.io.IOException: closed
\tat com.example.Db.read(Db.java:8)
\t... 1 more
"""
GO = b"""panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
main.main()
\t/tmp/main.go:8 +0x1d
exit status 2
"""
DATED = b"""2026-11-29T08:00:00Z select
from orders
3 rows
"""
INDENTED = b"""Nov 29 08:00:00 kernel: trace
  [<ffff>] schedule
"""


BASIC_CONFIG = [
    b"INFO:root:before\n",
    b"""ERROR:root:failed
Traceback (most recent call last):
  File "a.py", line 3, in <module>
    1/0
    ~^~
ZeroDivisionError: division by zero

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 5, in <module>
    raise KeyError(1)
KeyError: 1
""",
    b"Level 25:root:after\n",
]
SPRING = [
    b"""2026-01-02 03:04:05.123 ERROR 1 --- [nio-8080-exec-1] o.a.c.[dispatcherServlet] : threw

java.lang.IllegalStateException: a
\tat c.e.A.b(A.java:12) ~[classes/:na]
Caused by: java.lang.NullPointerException: null
\tat c.e.E.f(E.java:14)
\t... 12 more
""",
    b"2026-01-02 03:04:06.123  INFO 1 --- [main] c.e.App : after\n",
]
PANICS = [
    b"INFO[0000] before\n",
    b"""panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x45]

goroutine 1 [running]:
main.main()
\t/tmp/x.go:8 +0x1d
exit status 2
""",
    b"WARN[0001] between\n",
    b"""http: panic serving 127.0.0.1:1: failed
goroutine 19 [running]:
net/http.(*conn).serve.func1()
\t/x.go:1 +0x1
""",
]


SQLALCHEMY = [
    b"""2026-01-02 03:04:05,123 ERROR root: failed
Traceback (most recent call last):
  File "a.py", line 3, in <module>
sqlalchemy.exc.ProgrammingError: (psycopg2.errors.UndefinedTable) relation "x" does not exist
LINE 1: select * from x
                      ^

[SQL: select * from x where id = %(id)s]
[parameters: {'id': 1}]
(Background on this error at: https://sqlalche.me/e/20/f405)
""",
    b"2026-01-02 03:04:06,123 INFO root: next\n",
]
POOL = [
    b"""[2026-01-02 03:04:05,123: ERROR/ForkPoolWorker-1] Task failed
multiprocessing.pool.RemoteTraceback:
\"""
Traceback (most recent call last):
  File "pool.py", line 3, in worker
__mp_main__.Failed: 1
\"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
py4j.protocol.Py4JJavaError: An error occurred while calling o0.show.
: java.lang.ArithmeticException: / by zero
\tat org.apache.spark.sql.Dataset.show(Dataset.scala:1)
""",
    b"--- Logging error ---\nTraceback (most recent call last):\nMessage: 'x'\nArguments: ()\n",
]
PYTHON_LINES = [
    b"[2026-01-02 03:04:05 +0000] [7] [INFO] Listening at: http://0.0.0.0:8000 (7)\n",  # gunicorn
    b"\x1b[32mINFO\x1b[0m:     Started server process [\x1b[36m7\x1b[0m]\n",  # uvicorn
    b'INFO:     127.0.0.1:1 - "GET / HTTP/1.1" 200 OK\n',
    b'[02/Jan/2026 03:04:05] "GET / HTTP/1.1" 200 1\n',  # Django
    b"[I 260102 03:04:05 web:2348] 200 GET / (::1) 1.00ms\n",  # Tornado
    b"\x1b[2m2026-01-02 03:04:05\x1b[0m [\x1b[32m\x1b[1minfo     \x1b[0m] \x1b[1mx\x1b[0m\n",
    b"[pid: 7|app: 0|req: 1/1] 127.0.0.1 () {1 vars in 2 bytes} GET /\n",  # uWSGI
    b"[INFO/MainProcess] created temp directory\n",  # multiprocessing
    b"\x1b[33mWARNING \x1b[0m root: x\n",  # colorlog
    b"\x1b[32m2026-01-02 03:04:05.123\x1b[0m | \x1b[1mINFO    \x1b[0m | a:b:1 - x\n",  # loguru
    b"I0102 03:04:05.123456 7 main.py:3] x\n",  # absl
    b'{"event": "x", "level": "info"}\n',
    b"<14>x\n",
]
SPRING_REPORT = [
    b"""2026-01-02T03:04:05.123Z ERROR 1 --- [main] o.s.b.d.LoggingFailureAnalysisReporter :

***************************
APPLICATION FAILED TO START
***************************

Web server failed to start. Port 8080 was already in use.
""",
    b"""[2026-01-02T03:04:05,123][ERROR][o.e.b.Elasticsearch] [node-1] fatal exception
java.lang.IllegalStateException: {
  x
}
\tSuppressed: java.io.IOException: closed
""",
    b"Jan 02, 2026 3:04:05 AM com.example.App main\nSEVERE: failed\njava.io.IOException: x\n",
    b"[main] INFO com.example.App - simple\n",
    b"\x1b[2m2026-01-02T03:04:05.123Z\x1b[0;39m \x1b[32m INFO\x1b[0;39m 1 --- [main] x\n",
    b"\x1b[34mINFO \x1b[0;39m x\n",  # logback
    b"[0.012s][info][gc] Using G1\n",
    b"####<Jan 2, 2026 3:04:05 AM UTC> <Error> <x>\n",
    b'{"@timestamp":"2026-01-02T03:04:05Z"}\n',
]
GO_LINES = [
    b'[GIN] 2026/01/02 - 03:04:05 | 200 | 1.2ms | 127.0.0.1 | GET "/"\n',
    b'[GIN] 2026/01/02 - 03:04:06 |\x1b[97;42m 500 \x1b[0m| GET "/x"\n',
    b"[GIN-debug] Listening and serving HTTP on :8080\n",
    b"[INFO] hclog\n",
    b"3:04AM INF zerolog\n",
    b"\x1b[90m3:04AM\x1b[0m \x1b[32mINF\x1b[0m zerolog\n",
    b"INF zerolog without time\n",
    b"03:04:05 log.Ltime\n",
    b"03:04:05.123456 main.go:7: log.Lmicroseconds\n",
    b"2026/01/02 03:04:05 INFO slog\n",
    b"2026-01-02T03:04:05.123Z\t\x1b[34mINFO\x1b[0m\tmain.go:7\tzap\n",
    b"1.7000000001e+09\tinfo\tzap\n",
    b"INFO\tzap without time\n",
    b"\x1b[31mERRO\x1b[0m[0000] logrus\n",
    b"\x1b[1;91mFATA\x1b[0m charm\n",
    b"I0102 03:04:05.123456       7 main.go:7] klog\n",
    b"ts=2026-01-02T03:04:05Z caller=main.go:7 level=info msg=go-kit\n",
    b"t=2026-01-02T03:04:05+0000 lvl=info msg=log15\n",
    b'127.0.0.1 - - [02/Jan/2026:03:04:05 +0000] "GET / HTTP/1.1" 200 1\n',
    b'{"level":"info","msg":"x"}\n',
    b"2026/01/02 03:04:05 [ERROR] 2 errors occurred:\n\t* a\n\t* b\n\n",
]
RUST = [
    b"\x1b[2m2026-01-02T03:04:05Z\x1b[0m \x1b[32m INFO\x1b[0m a\n",  # tracing
    b"\x1b[90m[\x1b[0m2026-01-02T03:04:05Z \x1b[32mINFO \x1b[0m a\x1b[90m]\x1b[0m b\nnote\n",
    b"[2026-01-02T03:04:06Z] b\n",
]
COLOURED = [b"\x1b[31mTrace\x1b[0m\n\x1b[2m  at a\x1b[0m\n\tat b\n", b"next\n", b'"quoted"\n']

LOGS: dict[Preset, list[bytes]] = {
    "python": [*BASIC_CONFIG, *SQLALCHEMY, *POOL, *PYTHON_LINES],
    "java": [*SPRING, *SPRING_REPORT],
    "go": [*PANICS, *GO_LINES],
    "iso-date": RUST,
    "indented": COLOURED,
}


def _cri(line: bytes) -> bytes:
    return b"2026-11-29T08:00:00.1Z stdout F " + line


def _docker(line: bytes) -> bytes:
    text = json.dumps({"log": line.decode(), "stream": "stdout"}, separators=(",", ":"))
    return text.encode() + b"\n"


@pytest.mark.parametrize("preset", LOGS)
def test_a_preset_cuts_the_logs_of_many_loggers_as_a_person_would(preset: Preset) -> None:
    rules, records = RecordRules.of("", preset, timedelta(seconds=2), 500), LOGS[preset]

    plain = rules.records_of("/a.log")
    assert plain is not None
    assert plain.split(b"".join(records)) == records
    contained = rules.records_of(f"/{LAYOUTS[0]}")
    assert contained is not None
    for wrap in (_cri, _docker):
        wrapped = [b"".join(map(wrap, one.splitlines(keepends=True))) for one in records]
        assert contained.split(b"".join(wrapped)) == wrapped


@pytest.mark.parametrize("container", [False, True])
@pytest.mark.parametrize(
    ("preset", "record"),
    [("python", PYTHON), ("java", JAVA), ("go", GO), ("iso-date", DATED), ("indented", INDENTED)],
)
async def test_a_preset_joins_real_traces_also_in_a_container(
    tmp_path: Path, make_host: MakeHost, preset: Preset, record: bytes, container: bool
) -> None:
    folder = tmp_path / "pods/default_web_1-f/app" if container else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    if container:
        lines = record.splitlines()
        record = b"".join(b"2026-11-29T08:00:00.1Z stdout F %b\n" % line for line in lines)
    rules = RecordRules.of("", preset, timedelta(seconds=2), 500)
    host = make_host(f"{folder.relative_to(tmp_path)}/0.log", records=rules)
    (folder / "0.log").write_bytes(record * 3)

    await host.ship()
    assert host.shipped == record * 2
    assert [len(record)] == [host.follower.files()[0].unfinished]
