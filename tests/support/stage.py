"""A broker and a receiver that stay up while one journey after the other passes through them, and the verdict on each host."""

import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.oracle import Verdict, judge
from tests.support.processes import TookTooLong, wait_until
from tests.support.received import read_received
from tests.support.suite import Suite

_SETTLED = 0.5


class Stage:
    """The programs at the centre; hosts come and go. Starting Spark is what costs, so journeys share one stage."""

    def __init__(self, suite: Suite, *receiver_options: str) -> None:
        """Start the broker and one receiver for all partitions, and wait until both are ready."""
        self.suite = suite
        self.partitions = list(range(suite.partitions))
        self.broker = suite.start_broker()
        self.receiver = suite.start_receiver(self.partitions, *receiver_options)
        self.wait_for_receiver()

    def host_folder(self, host: str) -> Path:
        """Return the folder of a host's log files, made when it is not there."""
        folder = self.suite.folder / "hosts" / host
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def wait_for_receiver(self) -> None:
        """Wait until the receiver of the latest start owns its partitions."""
        self.suite.wait_for_receiver(self.receiver, self.partitions, self.receiver.starts)

    def set_up(self) -> None:
        """Start what an earlier journey has left dead."""
        if not self.broker.is_running():
            self.broker.start()
            self.suite.wait_for_broker(self.broker)
        if not self.receiver.is_running():
            self.receiver.start()
            self.wait_for_receiver()

    def verdict(self, host: str, written: Sequence[bytes], seconds: float = 150) -> Verdict:
        """Wait until as much as was written has arrived and no more comes, then judge what came."""
        size = sum(map(len, written))
        try:
            wait_until("all is received", lambda: self.received_size(host) >= size, seconds)
        except TookTooLong:
            return judge(written, read_received(self.suite.output, host))
        before = -1
        while before != (before := self.received_size(host)):
            time.sleep(_SETTLED)
        return judge(written, read_received(self.suite.output, host))

    def received_size(self, host: str) -> int:
        """Return how many bytes of a host are in its files, unpacked; 0 while a file is just being exchanged."""
        try:
            return len(read_received(self.suite.output, host))
        except (FileNotFoundError, ValueError):
            return 0
