"""What a user may do is read as the server reads it, and where the API is for it."""

import json
from typing import Any

import pytest

from broker.client.rights import Api, may_publish


@pytest.mark.parametrize(
    ("permissions", "subject", "may"),
    [
        pytest.param(None, "logs.p0.a", True, id="no limits"),
        pytest.param({"subscribe": {"allow": ["x"]}}, "logs.p0.a", True, id="limits of others"),
        pytest.param({"publish": {"allow": ["logs.p0.a"]}}, "logs.p0.a", True, id="itself"),
        pytest.param({"publish": {"allow": ["logs.*.a"]}}, "logs.p0.a", True, id="a star"),
        pytest.param({"publish": {"allow": ["logs.>"]}}, "logs.p0.a.b", True, id="the rest"),
        pytest.param({"publish": {"allow": ["logs.>"]}}, "logs", False, id="no rest"),
        pytest.param({"publish": {"allow": ["logs.p0.b"]}}, "logs.p0.a", False, id="another"),
        pytest.param({"publish": {"allow": ["logs.p0"]}}, "logs.p0.a", False, id="shorter"),
        pytest.param({"publish": {"deny": ["logs.>"]}}, "logs.p0.a", False, id="denied"),
        pytest.param({"publish": {"allow": []}}, "logs.p0.a", False, id="nothing at all"),
    ],
)
def test_rights_are_read_as_the_server_reads_them(
    permissions: dict[str, object] | None, subject: str, may: bool
) -> None:
    assert may_publish(permissions, subject) is may


def rights(*publish: str) -> dict[str, Any]:
    return {"publish": {"allow": list(publish)}}


def test_without_limits_it_is_in_its_usual_place() -> None:
    assert Api().subject("STREAM.INFO.LOGS") == "$JS.API.STREAM.INFO.LOGS"
    assert Api({"subscribe": {}}).subject("INFO") == "$JS.API.INFO"


def test_a_prefix_that_rights_name_is_found() -> None:
    api = Api(rights("logs.*.web01", "JS.LOGS.API.DIRECT.GET.LOGS.logs.*.web01"))

    assert (
        api.subject("DIRECT.GET.LOGS.logs.p3.web01") == "JS.LOGS.API.DIRECT.GET.LOGS.logs.p3.web01"
    )


def test_a_prefix_that_was_given_counts() -> None:
    assert Api(prefix="$JS.hub.API").subject("INFO") == "$JS.hub.API.INFO"


@pytest.mark.parametrize(
    "answer", [b"", b"x", b"[]", b"{}", b'{"data": 1}', json.dumps({"data": {}}).encode()]
)
def test_a_server_that_tells_nothing_that_can_be_read_is_taken_for_an_open_one(
    answer: bytes,
) -> None:
    assert Api.told(answer).subject("INFO") == "$JS.API.INFO"
