import pytest

from broker.provision.cautions import cautions
from broker.topology import Topology


def test_what_keeps_all_promises_is_not_remarked_on() -> None:
    assert cautions(Topology()) == ()
    assert cautions(Topology(replicas=3, max_msgs=5, max_msgs_per_subject=-1)) == ()


@pytest.mark.parametrize(
    ("topology", "word"),
    [
        (Topology(storage="memory"), "gone when nats-server stops"),
        (Topology(discard="old"), "received or not"),
        (Topology(max_msgs_per_subject=9), "oldest lines"),
        (Topology(max_msgs_per_subject=9, discard_new_per_subject=True), "waits"),
        (Topology(max_consumers=20), "10 are the partitions'"),
        (Topology(replicas=2), "than with 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_breaks_a_promise_is_one_line(topology: Topology, word: str) -> None:
    (said,) = cautions(topology)

    assert word in said
    assert "\n" not in said
