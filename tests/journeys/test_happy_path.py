import time

import pytest

from broker.wire.subjects import partition_of
from tests.support.oracle import judge_host
from tests.support.processes import wait_until
from tests.support.received import hosts_in
from tests.support.stage import Stage
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(360)]

HOSTS = ["web01", "web02", "db01.example.net", "a.b.c.d.example.org", "mail01"]
FILES = ["access.log", "app.log", "audit.log"]


def test_every_line_of_five_hosts_with_three_files_arrives_once_and_in_order(stage: Stage) -> None:
    files = {host: [stage.host_folder(host) / name for name in FILES] for host in HOSTS}
    assert {partition_of(host, 2) for host in HOSTS} == {0, 1}

    with Traffic([path for paths in files.values() for path in paths], 100) as traffic:
        shippers = [stage.suite.start_shipper(host, paths) for host, paths in files.items()]
        wait_until(
            "every log has lines",
            lambda: min(map(traffic.lines_of, traffic.written)) > 110,
            60,
            shippers,
        )
    verdicts = {
        host: stage.verdict(host, [traffic.written[path] for path in paths])
        for host, paths in files.items()
    }

    for host, verdict in verdicts.items():
        assert verdict.is_perfect, f"{host}: {verdict}"
        assert verdict.written > 300
        assert judge_host(files[host], stage.suite.output, host).is_perfect
    assert hosts_in(stage.suite.output) >= set(HOSTS)
    assert [shipper.stop(10) for shipper in shippers] == [0] * len(HOSTS)


def test_lines_that_were_there_before_the_shipper_are_shipped_once_by_once(stage: Stage) -> None:
    files = [stage.host_folder("once01") / name for name in FILES]
    with Traffic(files, 400) as traffic:
        time.sleep(0.5)

    codes = [stage.suite.start_shipper("once01", files, "--once").wait(90) for _ in range(2)]

    assert codes == [0, 0]
    verdict = stage.verdict("once01", list(traffic.written.values()))
    assert verdict.is_perfect, str(verdict)
