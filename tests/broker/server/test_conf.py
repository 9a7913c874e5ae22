import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.address import Address
from broker.server.binary import find
from broker.server.conf import ServerConf, render, store_limit, stream_limit

CONF = ServerConf("b1", Address("127.0.0.1", 0), Address("::1", 0), "/var/lib/logs", 10**9)
sizes = st.integers(0, 10**15)


@pytest.mark.parametrize(
    "folder", ["plain", 'with "quotes" and \\', "mit Umläuten ü", "$HOME {x} # no"]
)
def test_nats_server_accepts_what_is_rendered_whatever_the_folder_is_called(
    tmp_path: Path, folder: str
) -> None:
    store = tmp_path / folder
    store.mkdir()
    conf = store / "nats-server.conf"
    conf.write_text(render(ServerConf("b1", CONF.listen, CONF.http, str(store), 10**9)), "utf-8")

    checked = subprocess.run([find(None), "-t", "-c", conf], capture_output=True, text=True)

    assert checked.returncode == 0, checked.stderr


def test_acknowledged_means_on_disk_in_every_configuration() -> None:
    assert "sync_interval: always" in render(CONF)


def test_without_an_address_there_is_no_monitoring() -> None:
    silent = ServerConf("b1", CONF.listen, None, "/x", 1)

    assert "http:" in render(CONF)
    assert "http:" not in render(silent)


@given(sizes, sizes, st.none() | sizes)
def test_a_store_always_fits_on_its_disk_and_keeps_what_it_has(
    free: int, held: int, reserve: int | None
) -> None:
    limit = store_limit(free, held, free + held, reserve)

    assert max(held, 1) <= limit <= max(free + held, 1)


def test_a_reserve_stays_free() -> None:
    assert store_limit(free=100, held=50, total=1000, reserve=30) == 120
    assert store_limit(free=100, held=50, total=1000, reserve=None) == 100
    assert store_limit(free=10, held=50, total=1000, reserve=30) == 50


@given(st.integers(4, 10**15), st.integers(1, 10_000), st.none() | st.integers(1, 10**16))
def test_the_stream_never_fills_the_store_so_that_offsets_can_be_committed(
    store: int, partitions: int, asked: int | None
) -> None:
    limit = stream_limit(store, partitions, asked)

    assert 0 < limit < store
    assert asked is None or limit <= asked


@pytest.mark.parametrize(
    ("store", "hosts"),
    [
        pytest.param(10 * 1024**3, 100, id="a small disk"),
        pytest.param(10**12, 10_000, id="a large disk"),
    ],
)
def test_hosts_can_keep_their_positions_beside_a_full_stream(store: int, hosts: int) -> None:
    offsets = 32 * 1024**2 + 10 * 16 * 1024

    assert store - stream_limit(store, 10, None) - offsets >= hosts * 100_000
