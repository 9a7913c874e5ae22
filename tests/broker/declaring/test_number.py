from broker.declaring.number import number_by
from broker.wire.subjects import Subject

HOSTS = ("web01", "web02", "db.example.net", "mail", "x", "kafka-3.dc1.example.net")


def test_where_nothing_is_there_nothing_tells_a_number() -> None:
    assert number_by([], 0, ()) is None


def test_consumers_tell_the_number_and_offsets_do_where_consumers_are_gone() -> None:
    assert number_by([0, 1, 2], 0, ()) == 3
    assert number_by([], 3, ()) == 3


def test_hosts_tell_that_there_were_more_partitions_than_have_a_consumer() -> None:
    hosts = [Subject.for_host(host, 12) for host in HOSTS]

    assert number_by([0, 1], 1, hosts) == 12


def test_lines_of_a_client_that_chose_its_partition_count_by_that() -> None:
    chosen = {Subject(0, "web01"), Subject(1, "web01")}

    assert number_by([0], 0, chosen) == 2
