"""The consumer through which a shipper reads its headers back has a name that a server takes, whatever the host's."""

import re

from broker.wire.subjects import registry_consumer


def test_hosts_that_no_consumer_may_be_called_after_go_by_a_hash_of_their_own() -> None:
    hosts = ["web.example.net", "web_example.net", "a\\b", "é", "x" * 253]

    names = {registry_consumer(host) for host in hosts}

    assert len(names) == len(hosts)
    assert all(re.fullmatch("shipper-=[0-9a-f]{32}", name) for name in names)
