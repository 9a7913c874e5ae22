"""New certificates are taken over without a restart; own ones are renewed before they end; of others a person is told."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.auth.authority import Authority, Use
from broker.auth.certificates import Pki, ends_of
from broker.server.certwatch import Certwatch

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("broker1.example.net", "127.0.0.1")


class Scene:
    def __init__(self, folder: Path) -> None:
        self.pki = Pki(folder / "tls")
        self.authority = self.pki.found("ours", BEGIN)
        self.pki.sign(self.authority, NAMES, BEGIN)
        self.now = BEGIN
        self.reloads = 0
        self.watch = Certwatch(
            [self.pki.broker, self.pki.own, self.pki.authority],
            self.pki,
            self.reload,
            lambda: self.now,
        )

    async def reload(self) -> None:
        self.reloads += 1


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_nothing_happens_while_nothing_changes(scene: Scene) -> None:
    for _ in range(3):
        await scene.watch.step()

    assert scene.reloads == 0


async def test_a_new_certificate_is_read_once(scene: Scene) -> None:
    scene.pki.sign(scene.authority, NAMES, BEGIN)

    for _ in range(3):
        await scene.watch.step()

    assert scene.reloads == 1


async def test_a_file_that_is_missing_for_a_moment_is_waited_for(scene: Scene) -> None:
    text = scene.pki.broker.read_bytes()
    scene.pki.broker.unlink()
    await scene.watch.step()
    assert scene.reloads == 0

    scene.pki.broker.write_bytes(text)
    await scene.watch.step()
    assert scene.reloads == 1


async def test_own_certificates_are_renewed_a_month_before_their_end_with_the_same_names(
    scene: Scene,
) -> None:
    scene.now = BEGIN + timedelta(days=334)
    await scene.watch.step()
    assert scene.reloads == 0

    scene.now = BEGIN + timedelta(days=336)
    await scene.watch.step()

    assert scene.reloads == 1
    assert scene.pki.names() == NAMES
    ends = {end.path: end.not_after for end in ends_of([scene.pki.broker, scene.pki.own])}
    assert set(ends.values()) == {scene.now + timedelta(days=365)}


async def test_what_cannot_be_renewed_is_spoken_of_once_a_day(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.pki.authority_key.unlink()
    with caplog.at_level(logging.WARNING):
        for hours in range(0, 72, 6):
            scene.now = BEGIN + timedelta(days=363, hours=hours)
            await scene.watch.step()

    words = [f"{record.args[0]} {record.args[1]}" for record in caplog.records if record.args]
    own = sorted(map(str, (scene.pki.broker, scene.pki.own)))
    assert words == [f"{path} ends" for path in own] * 2 + [f"{path} ended" for path in own]
    assert scene.reloads == 0


async def test_a_damaged_authority_is_said_and_stops_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.pki.authority_key.write_text("nonsense")
    scene.now = BEGIN + timedelta(days=340)

    await scene.watch.step()

    assert "cannot renew" in caplog.text
    assert scene.reloads == 0


def test_an_authority_is_never_replaced(scene: Scene) -> None:
    with pytest.raises(Exception, match="there already"):
        scene.pki.found("another", BEGIN)
    with pytest.raises(Exception, match="another authority"):
        scene.pki.adopt(Authority.found("another", BEGIN, timedelta(days=1)))
    assert scene.authority.has_signed(
        scene.authority.issue(["x"], Use.CLIENT, BEGIN, timedelta(days=1)).certificate
    )
