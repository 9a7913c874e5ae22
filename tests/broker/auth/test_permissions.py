"""Rights as values: the examples of `permissions` are true, and a host's rights have its name."""

import re
from collections.abc import Iterator

import pytest

from broker.auth import permissions
from broker.auth.credentials import Credential
from broker.auth.permissions import API, grant_rights
from nats_logship.wire.interval import INTERVAL_SUBJECT
from nats_logship.wire.pause import PAUSE_SUBJECT
from tests import secured

CONFIG = ("partitions", "streams", "pause", "interval")


@pytest.mark.parametrize("host", ["web01", "web01.example.net", "wéb01", "x" * 253])
def test_every_right_of_a_host_has_its_name(host: str) -> None:
    mine, other = (grant_rights(secured.host(name), 1) for name in (host, "db" + host[2:]))
    assert mine is not None
    assert other is not None

    shared = {*mine.publish, *mine.subscribe} & {*other.publish, *other.subscribe}
    assert shared == {
        *(f"{API}.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.{key}" for key in CONFIG),
        PAUSE_SUBJECT,
        INTERVAL_SUBJECT,
        "$SYS.REQ.USER.INFO",
    }
    assert [one for one in mine.publish if one.startswith("logs.")] == [f"logs.*.{host}"]


CREDENTIALS = {
    "Host": secured.host("web01"),
    "Receiver": secured.receiver("r2", 2),
    "Monitor": secured.monitor("m1"),
    "Site": secured.site("away"),
}


def read_examples() -> dict[str, set[str]]:
    """Return the subjects in the head of `permissions.py` by the words before them."""
    found: dict[str, set[str]] = {}
    words = ""
    for line in (permissions.__doc__ or "").splitlines():
        if line.startswith("    "):
            subject = re.sub(r"^API\b", API, re.split(r"\s{2,}", line.strip())[0])
            found[words].update(expand(subject))
        elif line.endswith(":"):
            words = line
            found[words] = set()
    return found


def expand(subject: str) -> Iterator[str]:
    """Yield the subjects of `x{a,b}` or `x{0..7}`."""
    choice = re.fullmatch(r"(.*?)\{(.*?)\}(.*)", subject)
    if choice is None:
        yield subject
        return
    before, choices, after = choice.groups()
    first, _, last = choices.partition("..")
    some = map(str, range(int(first), int(last) + 1)) if last else choices.split(",")
    for one in some:
        yield from expand(before + one + after)


@pytest.mark.parametrize("kind", CREDENTIALS)
@pytest.mark.parametrize("verb", ["publishes", "subscribes"])
def test_the_examples_in_the_head_of_permissions_are_true(kind: str, verb: str) -> None:
    rights = grant_rights(CREDENTIALS[kind], 1, "here")
    (words, example), *_ = (
        (words, subjects)
        for words, subjects in read_examples().items()
        if words.startswith(f"{kind} `{CREDENTIALS[kind].name}`") and verb in words
    )

    assert rights is not None
    assert example == {*(rights.publish if verb == "publishes" else rights.subscribe)}
    assert verb == "subscribes" or rights.responds == ("may answer" in words)


def test_the_example_of_a_receiver_of_all_partitions_is_true() -> None:
    all_rights = grant_rights(secured.receiver("all"), 1)
    one_rights = grant_rights(CREDENTIALS["Receiver"], 1)
    (example,) = (
        one for words, one in read_examples().items() if words.startswith("Receiver `all")
    )

    assert all_rights is not None
    assert one_rights is not None
    shared = {one.replace(".r2.", ".all.") for one in one_rights.publish if "p2" not in one}
    assert example | shared == {*all_rights.publish}


@pytest.mark.parametrize(
    "credential", [*CREDENTIALS.values(), secured.receiver("all")], ids=lambda one: str(one.holder)
)
def test_no_right_but_an_admins_reaches_the_api_of_the_streams_itself(
    credential: Credential,
) -> None:
    rights = grant_rights(credential, 1, "here")
    assert rights is not None

    every = (*rights.publish, *rights.subscribe)
    assert not [one for one in every if one.startswith(("$JS.API", "$JS.>", "$JS.*", ">", "*"))]
