"""A TCP line that a test can slow down and cut."""

import socket
import threading
import time

__all__ = ["Proxy"]


class Proxy:
    """A TCP proxy that can be cut, and that cuts by itself after so many bytes from the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut_after: int | None = None
        self.pause = 0.0  # seconds before every 64 KiB from the server
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [client, server]
            for source, target, down in ((client, server, False), (server, client, True)):
                thread = threading.Thread(
                    target=self._pump, args=(source, target, down), daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def _pump(self, source: socket.socket, target: socket.socket, down: bool) -> None:
        while True:
            try:
                data = source.recv(65536)
                if not data:
                    break
                time.sleep(self.pause if down else 0)
                target.sendall(data)
            except OSError:
                break
            if down and self.cut_after is not None:
                self.cut_after -= len(data)
                if self.cut_after < 0:
                    self.cut_after = None
                    break
        self.cut()

    def cut(self) -> None:
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for each in self._sockets:
            each.close()
