import json
from typing import Any

import pytest

from broker.client.rights import Api


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


def test_where_some_calls_are_imported_renamed_each_goes_where_there_is_a_right_to_it() -> None:
    api = Api(rights("$JS.API.DIRECT.GET.LOGS.>", "SHIPAPI.CONSUMER.DELETE.LOGS.shipper-web01"))

    assert api.subject("DIRECT.GET.LOGS.logs.p3.web01").startswith("$JS.API.")
    assert api.subject("CONSUMER.DELETE.LOGS.shipper-web01").startswith("SHIPAPI.")
    assert api.subject("STREAM.PURGE.LOGS") == "SHIPAPI.STREAM.PURGE.LOGS"


def test_a_prefix_that_was_given_counts() -> None:
    assert Api(prefix="$JS.hub.API").subject("INFO") == "$JS.hub.API.INFO"


@pytest.mark.parametrize(
    "answer", [b"", b"x", b"[]", b"{}", b'{"data": 1}', json.dumps({"data": {}}).encode()]
)
def test_a_server_that_tells_nothing_that_can_be_read_is_taken_for_an_open_one(
    answer: bytes,
) -> None:
    assert Api.told(answer).subject("INFO") == "$JS.API.INFO"
