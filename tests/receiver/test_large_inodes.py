"""Inodes of 64 bits, as file systems have that hash: a store keeps 63 of them."""

import os
from typing import Any

import pytest

from tests.receiver.partition import Partition

pytestmark = pytest.mark.nats


class _Found:
    """What stat returns, with another inode."""

    def __init__(self, found: os.stat_result) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name) + (2**63 if name == "st_ino" else 0)


def test_files_with_inodes_of_64_bits_are_written_and_found_again(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, fstat = os.stat, os.fstat
    monkeypatch.setattr(os, "stat", lambda *given, **more: _Found(stat(*given, **more)))
    monkeypatch.setattr(os, "fstat", lambda *given: _Found(fstat(*given)))
    partition.lines("web01", b"1")
    done = partition.start()
    partition.lines("web01", b"2")

    partition.receive(done.until, partition.offset().epoch)

    assert partition.live.read_bytes() == b"1\n2\n"
