"""Pass requests on to an object store; the answers to the first ones for some path are lost.

    python -m tests.receiver.table.deaf HOST:PORT METHOD PART TIMES

prints its port, and each answer that is lost. delta-rs holds Python's lock while it waits for some
answers, so this is a process of its own.
"""

import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click

_OF_THE_CONNECTION = {"transfer-encoding", "content-length", "connection"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = http.client.HTTPConnection(address)
        server.request(self.command, self.path, body, dict(self.headers))
        answer = server.getresponse()
        content = answer.read()
        server.close()
        if self.command == method and part in self.path and left:
            click.echo(f"lost {left.pop()}: {self.path}")
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_CONNECTION:
                self.send_header(name, value)
        self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - as the library asks

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    _, address, method, part, times = sys.argv
    left = [*range(int(times))]
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    click.echo(f"port {made.server_port}")
    made.serve_forever()
