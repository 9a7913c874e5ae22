import pytest

from broker.server.conf_own import Key, contradiction, include, keys_of, where

TEXT = """\
# listen: "here"
max_connections: 5000 ; server_tags = [ssd, "a]b"]  // port: 1
"write_deadline" '3s'
websocket {
  listen: "0.0.0.0:8080"  # }
  no_tls: true
  headers { x: "}" , y: '{' }
}
mqtt: {port: 1883, tls { cert_file: "./a" }}
banner (
accounts { }
 )
)
include ./more.conf
ACCOUNTS { A: {} }
"""


def test_the_settings_of_a_text_are_those_that_stand_in_nothing_else() -> None:
    assert keys_of(TEXT) == (
        Key("max_connections", 2),
        Key("server_tags", 2),
        Key("write_deadline", 3),
        Key("websocket", 4),
        Key("mqtt", 9),
        Key("banner", 10),
        Key("include", 14, "./more.conf"),
        Key("accounts", 15),
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"port": 1, "tls": {"a": [1, {"b": "}"}]}}',
        "port 1\ntls {a: [1, {b: c}]}",
        "port=1;tls={}",
        "port: 1,tls: {}",
        "{ port: 1\n tls { } }\n",
    ],
)
def test_a_text_may_be_written_in_any_of_its_styles(text: str) -> None:
    assert [key.name for key in keys_of(text)] == ["port", "tls"]


def test_an_include_is_told_with_its_path() -> None:
    assert keys_of("include 'a b.conf'\n")[0].value == "a b.conf"
    assert keys_of(include("/etc/it's.conf"))[0].value == "/etc/it's.conf"


@pytest.mark.parametrize(
    ("text", "name", "way"),
    [
        ("max_connections: 1\nPort: 4", "port", "--listen"),
        ("store_dir: x", "store_dir", "--store-dir"),
        ("authorization { }", "authorization", "logbroker credentials"),
        ("log_file: x", "log_file", "passed on"),
        ("ping_max: 3", "ping_max", "logbroker sets it"),
        ("leafnodes { }", "leafnodes", "logbroker sets it"),
    ],
)
def test_what_logbroker_decides_is_named_with_the_way_to_say_it(
    text: str, name: str, way: str
) -> None:
    found = contradiction(keys_of(text), keys_of("ping_max: 2\nleafnodes { port: 1 }"))

    assert found is not None
    assert (found[0].name, way in found[1]) == (name, True)


def test_what_logbroker_knows_nothing_of_is_the_operators() -> None:
    keys = keys_of("max_connections: 5\nwebsocket { port: 1 }\nserver_tags: [a]")

    assert contradiction(keys, keys_of("listen: x")) is None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('nats-server: /e/own.conf:3:1: unknown field "x"\n', '/e/own.conf:3:1: unknown field "x"'),
        ("Parse error on line 2: 'Unexpected EOF.'", "/o.conf:2: 'Unexpected EOF.'"),
        ("config is invalid (/o.conf:1:2)", "/o.conf:1:2: config is invalid"),
        (
            "variable reference for 'NOPE' on line 4 can not be found",
            "/o.conf:4: variable reference for 'NOPE' can not be found",
        ),
        ("open none: no such file or directory", "/o.conf: open none: no such file or directory"),
    ],
)
def test_what_nats_server_says_is_told_as_file_and_line(said: str, told: str) -> None:
    assert where(said, "/o.conf") == told


def test_a_path_that_no_configuration_can_name_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be included"):
        include("a\nb")
