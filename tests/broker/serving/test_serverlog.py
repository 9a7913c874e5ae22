import pytest

from broker.serving.serverlog import Level, News, Said, explain, read_line, what


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[7] [INF] Server is ready", Said(Level.INFO, "Server is ready")),
        ("[7] [WRN] slow", Said(Level.WARNING, "slow")),
        ("[7] [FTL] dead", Said(Level.FATAL, "dead")),
        ("[7] 2026/11/20 19:00:00.1 [ERR] bad", Said(Level.ERROR, "bad")),
        ("panic: runtime error", Said(Level.ERROR, "panic: runtime error")),
        ("goroutine 1 [running]:", Said(Level.INFO, "goroutine 1 [running]:")),
        ("", Said(Level.INFO, "")),
    ],
)
def test_a_line_of_nats_server_keeps_its_level(line: str, said: Said) -> None:
    assert read_line(line) == said


@pytest.mark.parametrize(
    "text",
    [
        'Error listening on port: 127.0.0.1:4222, "listen tcp 127.0.0.1:4222: bind: address already in use"',
        "Can't start monitoring: can't listen to the monitor port: listen tcp 127.0.0.1:4222: bind: address already in use",
    ],
)
def test_a_port_in_use_is_named_with_what_to_do(text: str) -> None:
    reason = explain([Said(Level.FATAL, text)])

    assert reason.startswith("127.0.0.1:4222 is in use")
    assert "--listen" in reason


def test_the_last_trouble_is_the_reason_and_chatter_is_none() -> None:
    said = [Said(Level.ERROR, "first"), Said(Level.ERROR, "last"), Said(Level.INFO, "bye")]

    assert explain(said) == "last"
    assert explain([Said(Level.INFO, "Server is ready")]) == ""
    assert explain([]) == ""


@pytest.mark.parametrize(
    ("text", "news"),
    [
        ("  Git:      [b2fd3ef]", News.COMMIT),
        ("Reloaded server configuration (sha256:f9473f)", News.RELOADED),
        ("Failed to reload server configuration: no", News.NOT_RELOADED),
        ("Filestore [LOGS] Critical write error: write /x", News.FAILED_WRITE),
        ("JetStream stream 'LOGS > LOGS' critical write error: write /x", News.FAILED_WRITE),
        ("Closing existing clients", News.CLOSING),
        ("Server is ready", News.READY),
        ("  Error decrypting our stream metafile: unable to recover keys", News.CANNOT_DECRYPT),
        ("Starting JetStream", News.NOTHING),
    ],
)
def test_what_somebody_waits_for_is_heard(text: str, news: News) -> None:
    assert what(Said(Level.INFO, text)) is news
