"""A line to a broker that carries so many bytes a second each way, shared by all."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from nats_logship.app.address import Address, parse_address

_STEP = 0.05  # seconds


@dataclass
class SlowLine:
    """A TCP proxy; `rate` in bytes a second may be changed at any time."""

    target: Address
    rate: float
    address: Address | None = None
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"nats://{self.address}"

    async def open(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        self._ways = (asyncio.Lock(), asyncio.Lock())
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the broker is away
            answers, broker = await asyncio.open_connection(self.target.host, self.target.port)
            self._writers += [writer, broker]
            ways = (self._pump(reader, broker, 0), self._pump(answers, writer, 1))
            await asyncio.gather(*ways)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: int
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(max(1, int(self.rate * _STEP))):
                async with self._ways[way]:
                    await asyncio.sleep(len(data) / self.rate)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def close(self, server: asyncio.Server) -> None:
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def slow_line(url: str, rate: float) -> Iterator[SlowLine]:
    """Open a slow line to the broker at an address, served by a thread."""
    line = SlowLine(parse_address(url.removeprefix("nats://")), rate)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(line.open())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield line
    finally:
        asyncio.run_coroutine_threadsafe(line.close(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
