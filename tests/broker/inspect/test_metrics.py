"""`logbroker run --metrics`: what Prometheus and a load balancer are told."""

import re
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.broker.conftest import Broker, StartBroker, ask
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


def _get(broker: Broker, path: str) -> tuple[int, str]:
    """Return status and body of a page, or 0 where nobody listens yet."""
    found = re.search(r"listening on (http://\S+)", broker.said)
    if found is None:
        return 0, ""
    try:
        with urllib.request.urlopen(f"{found[1]}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_metrics_are_the_numbers_of_the_status(start_broker: StartBroker) -> None:
    broker = start_broker("--partitions", "2", "--metrics", "127.0.0.1:0", "--max-bytes", "100MB")
    server = broker.wait_ready()["server"]

    ask(server, *[("logs.p1.web01", b"a line\n")] * 3)

    def samples() -> dict[tuple[str, ...], float]:
        page = _get(broker, "/metrics")[1]
        return {
            (one.name.removeprefix("logbroker_"), *list(one.labels.values())[:1]): one.value
            for family in text_string_to_metric_families(page)
            for one in family.samples
        }

    def has_all_of_them() -> bool:
        found = samples()  # stream, partitions and hosts are asked for one after the other
        named = (("stream_messages", "LOGS"), ("partition_behind", "1"), ("hosts",))
        return [found.get(name) for name in named] == [3, 3, 1]

    wait_until("all figures are there", has_all_of_them, 60, every=0.5)
    found = samples()
    assert found["stream_max_bytes", "LOGS"] == 100_000_000
    assert found["silent_hosts",] == 0
    assert found["partition_behind", "0"] == found["partition_behind_seconds", "0"] == 0
    assert found["partition_behind_seconds", "1"] > 0
    assert {value for key, value in found.items() if key[0] == "check_status"} == {0.0}
    assert [value for key, value in found.items() if key[0] == "retention_purged_messages"] == [0]
    assert _get(broker, "/healthz") == (200, "ok\n")
    assert _get(broker, "/")[0] == 404
