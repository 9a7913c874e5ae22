import pytest

from broker.server.serverlog import (
    DEBUG,
    ERROR,
    FATAL,
    INFO,
    WARNING,
    LogLine,
    ServerNotice,
    explain,
    notice_in,
    read_line,
)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[7] [INF] Server is ready", LogLine(INFO, "Server is ready")),
        ("[7] [WRN] slow", LogLine(WARNING, "slow")),
        ("[7] [FTL] dead", LogLine(FATAL, "dead")),
        ("[7] 2026/11/20 19:00:00.1 [ERR] bad", LogLine(ERROR, "bad")),
        ("panic: runtime error", LogLine(ERROR, "panic: runtime error")),
        ("goroutine 1 [running]:", LogLine(DEBUG, "goroutine 1 [running]:")),
        ("", LogLine(DEBUG, "")),
    ],
)
def test_a_line_of_nats_server_keeps_its_level(line: str, said: LogLine) -> None:
    assert read_line(line) == said


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    text = 'Error listening on port: 127.0.0.1:4222, "listen tcp 127.0.0.1:4222: bind: address already in use"'

    reason = explain([LogLine(FATAL, text)])

    assert reason.startswith("cannot listen on 127.0.0.1:4222: address already in use")
    assert "--listen" in reason


def test_the_last_trouble_is_the_reason_and_chatter_is_none() -> None:
    said = [LogLine(ERROR, "first"), LogLine(ERROR, "last"), LogLine(INFO, "bye")]

    assert explain(said) == "last"
    assert explain([LogLine(INFO, "Server is ready")]) == ""
    assert explain([]) == ""


@pytest.mark.parametrize(
    ("line", "news"),
    [
        ("[7] [INF] Reloaded server configuration (sha256:f9473f)", ServerNotice.RELOADED),
        ("[7] [ERR] Failed to reload server configuration: no", ServerNotice.NOT_RELOADED),
        ("[7] [INF] Closing existing clients", ServerNotice.CLOSING),
        ("[7] [INF] Server is ready", ServerNotice.READY),
        ("[7] [WRN]   Error decrypting our stream metafile: no", ServerNotice.CANNOT_DECRYPT),
        ("[7] [INF] Starting JetStream", None),
        ("[7] [TRC] Server is ready", None),
        ("[7] [INF] 127.0.0.1:59136 - cid:8 - Server is ready", None),
    ],
)
def test_what_somebody_waits_for_is_heard(line: str, news: ServerNotice | None) -> None:
    assert notice_in(read_line(line)) is news


def test_control_characters_in_a_line_are_shown_as_escapes() -> None:
    assert explain([read_line("[7] [ERR] a\x1b[2Kb\r\u202ec")]) == r"a\x1b[2Kb\r\u202ec"
