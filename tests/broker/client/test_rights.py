"""What a user may publish, read from its permissions as nats-server reads them."""

import pytest

from broker.client.rights import may_publish


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
