"""Host names that do not identify one machine."""

import pytest

from shipper.host_name import find_shared_name


@pytest.mark.parametrize(
    ("host", "is_shared"),
    [
        *(
            (name, True)
            for name in ("localhost", "localhost.localdomain", "LOCALHOST", "127.0.0.1")
        ),
        *((name, True) for name in ("localhost6.localdomain6", "ip6-localhost", "127.0.1.1")),
        *((name, False) for name in ("web01", "localhost.example.net", "mylocalhost", "10.0.0.1")),
    ],
)
def test_a_name_that_every_machine_has_for_itself_is_recognised(host: str, is_shared: bool) -> None:
    assert bool(find_shared_name(host)) is is_shared
