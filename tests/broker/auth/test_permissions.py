import pytest

from broker.auth.permissions import API, SubjectRights, permissions_of
from broker.auth.store import Credential, CredentialKind
from broker.wire.pause import PAUSE_SUBJECT
from tests.secured import NOW, key_of


def of(kind: CredentialKind, name: str) -> SubjectRights:
    permissions = permissions_of(Credential(kind=kind, name=name, nkey=key_of("x"), since=NOW), 1)
    assert permissions is not None
    return permissions


@pytest.mark.parametrize("host", ["web01", "web01.example.net", "wéb01", "x" * 253])
def test_all_that_a_host_may_do_bears_its_own_name(host: str) -> None:
    other = of(CredentialKind.HOST, "db" + host[2:])

    mine = of(CredentialKind.HOST, host)

    shared = {*mine.publish, *mine.subscribe} & {*other.publish, *other.subscribe}
    assert shared == {
        f"{API}.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.partitions",
        f"{API}.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.pause",
        PAUSE_SUBJECT,
        f"{API}.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.streams",
        "$SYS.REQ.USER.INFO",
    }
    assert [one for one in mine.publish if one.startswith("logs.")] == [f"logs.*.{host}"]


def test_a_receiver_of_all_partitions_reaches_those_to_come_and_still_writes_no_line() -> None:
    mine = of(CredentialKind.RECEIVER, "r")

    assert {"$KV.LOGS_OFFSETS.*", f"{API}.CONSUMER.MSG.NEXT.LOGS.*"} <= {*mine.publish}
    assert not any(one.startswith(("logs.", ">", "*")) for one in mine.publish)
