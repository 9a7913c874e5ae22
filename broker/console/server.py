"""The web server of the console: its page, its documents, and who is admitted.

A console that other machines reach requires a token or a client certificate. Pages of other origins
can neither read nor frame it: it answers only to its own name, and sends no CORS header.
"""

import asyncio
import hmac
import json
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from broker.console.feeds import Feeds
from broker.console.lines import LineFinder
from broker.console.request import MOST_LINES, parse_line_request, parse_number
from nats_logship.app.address import Address
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.pages import explain_bind_error
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import BrokerAway, Connection

_PAGE = Path(__file__).with_name("page")
_UNGUARDED = {"/console.css", "/healthz"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_AWAY = (BrokerAway, ConnectionLost, Rejected, TimeoutError)
_MOST_STREAMS, _MOST_SEARCHES = 200, 20
_PIECE, _WRITE_PATIENCE = 65536, 30.0  # bytes that a client must take in so many seconds
_WRONG_TOKEN_DELAY, _SHUTDOWN_PATIENCE = 1.0, 0.2  # seconds; these for open requests
# without an action, a form is sent to the page's whole address, so the part after # is kept
_LOGIN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>logship console</title>
<link rel="stylesheet" href="console.css"><form method="post" class="login">
<label>Token <input name="token" type="password" autofocus required></label>
<button>Log in</button><b class="bad" role="alert">{}</b></form></html>"""
logger = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the console listens, and whether it requires a `token` or, with `tls`, a certificate.

    Raises `ConfigurationError` if it requires neither and other machines can reach the address.
    """

    address: Address
    token: str = ""
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        is_asked = self.token or (self.tls and self.tls.verify_mode is ssl.CERT_REQUIRED)
        if not (self.address.is_loopback or is_asked):
            raise ConfigurationError(
                f"other machines can reach --listen {self.address}: give --token-file, or "
                "--listen-cert with --listen-ca"
            )

    def is_known(self, request: web.Request) -> bool:
        """Whether a request uses our name: without token and TLS, against DNS rebinding."""
        name = request.url.host or ""
        return bool(self.token or self.tls) or Address(name, 0).is_loopback

    def admits(self, given: str) -> bool:
        """Whether a token is the right one, or none is required."""
        return not self.token or hmac.compare_digest(given.encode(), self.token.encode())


class Console:
    """The console of one broker; `listener` says who is admitted."""

    def __init__(self, connection: Connection, listener: Listener, table: str = "") -> None:
        """Serve nothing before `run`; find old lines in a table, if one is given."""
        self._listener = listener
        self._feeds, self._finder = Feeds(connection), LineFinder(connection, table)
        digest = hmac.digest(listener.token.encode(), b"logship console", "sha256").hex()
        self._cookie = f"logship-{digest[:8]}", digest[8:]  # cookies ignore ports
        self._streams = asyncio.Semaphore(_MOST_STREAMS)
        self._searches, self._arounds = (asyncio.Semaphore(_MOST_SEARCHES) for _ in range(2))

    async def run(self, ready: Callable[[str], None]) -> None:
        """Serve until cancelled; call `ready` with the URL.

        Raises `OperatorError` for an address that cannot be used.
        """
        runner = web.AppRunner(
            self._app(),
            access_log=None,
            shutdown_timeout=_SHUTDOWN_PATIENCE,
            handler_cancellation=True,  # a page that closes ends its search
        )
        await runner.setup()
        try:
            address = self._listener.address
            site = web.TCPSite(runner, address.host, address.port, ssl_context=self._listener.tls)
            try:
                await site.start()
            except OSError as error:
                raise explain_bind_error(address, error, "choose another --listen") from None
            port = runner.addresses[0][1]
            ready(f"http{'s' if self._listener.tls else ''}://{address.reached_at(port)}/")
            await self._feeds.run()
        finally:
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=4096)
        handlers = (self._events, self._hosts, self._host, self._lines, self._around, self._healthz)
        for handler in handlers:
            app.router.add_get(f"/{handler.__name__[1:]}", handler)
        app.router.add_get("/", self._page)
        app.router.add_post("/", self._login)
        app.router.add_static("/", _PAGE)
        app.on_response_prepare.append(_set_headers)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests by another name, from another page or without the token."""
        try:
            return await self._answer(request, handler)
        except _AWAY as error:
            text = f"the broker does not answer: {error}".rstrip(": ")
            return web.Response(status=503, text=f"{text}\n")
        except (ValueError, OperatorError) as error:
            return web.Response(status=400, text=f"{error}\n")

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._listener.is_known(request):
            raise web.HTTPForbidden(text="this console answers only to the name localhost\n")
        # a link in another page may open ours, which no other page can read or frame
        is_link = request.path == "/" and request.headers.get("Sec-Fetch-Dest") == "document"
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in {"none", "same-origin"} and not is_link:
            raise web.HTTPForbidden(text="this console answers only to its own page\n")
        _, is_bearer, bearer = request.headers.get("Authorization", "").partition("Bearer ")
        name, session = self._cookie
        given = request.cookies.get(name, "").encode()
        is_in = not self._listener.token or hmac.compare_digest(given, session.encode())
        is_open = request.path in _UNGUARDED or request.method == "POST"  # only a token is posted
        if is_in or is_open or (is_bearer and self._listener.admits(bearer)):
            return await handler(request)
        if is_bearer:
            await _delay(request)
        if request.path == "/":
            return _ask_for_token()
        raise web.HTTPUnauthorized(text="a token is required: reload the page to enter it\n")

    async def _login(self, request: web.Request) -> web.StreamResponse:
        given = (await request.post()).get("token", "")
        if not self._listener.admits(str(given)):
            await _delay(request)
            return _ask_for_token("This is not the token.")
        response = web.HTTPSeeOther("./")  # a proxy may have it below another path
        secure = bool(self._listener.tls)
        response.set_cookie(*self._cookie, httponly=True, samesite="Lax", secure=secure)
        raise response

    async def _page(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(_PAGE / "index.html")

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _hosts(self, _: web.Request) -> web.StreamResponse:
        response = web.json_response(await self._feeds.hosts())
        response.enable_compression()
        return response

    async def _host(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(await self._feeds.host(request.query.get("host", "")))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        async with _limit(self._streams):
            return await _stream(request, self._feeds.views())

    async def _lines(self, request: web.Request) -> web.StreamResponse:
        now = datetime.now(UTC)  # noqa: TID251 - what a person means by today
        wanted = await asyncio.to_thread(parse_line_request, request.query, now)
        position = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        find = self._finder
        async with _limit(self._searches):
            documents = find.follow(wanted, position) if position else find.search(wanted)
            return await _stream(request, documents)

    async def _around(self, request: web.Request) -> web.StreamResponse:
        most = parse_number("lines", request.query.get("lines", "50"), MOST_LINES)
        async with _limit(self._arounds):
            document = await self._finder.around(request.query.get("line", ""), most)
        return web.json_response(document)


async def _delay(request: web.Request) -> None:
    await asyncio.sleep(_WRONG_TOKEN_DELAY)
    logger.warning("wrong token from %s", request.remote)


def _ask_for_token(note: str = "") -> web.Response:
    return web.Response(status=401, text=_LOGIN.format(note), content_type="text/html")


def _make_event(document: dict[str, Any]) -> bytes:
    """Return a server-sent event; bytes that are not UTF-8 (lone surrogates) are escapes.

    Its `id` is what a browser sends when it connects again.
    """
    position = f"id: {document.pop('id')}\n" if "id" in document else ""
    return f"{position}data: {json.dumps(document, separators=(',', ':'))}\n\n".encode()


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


@asynccontextmanager
async def _limit(limit: asyncio.Semaphore) -> AsyncIterator[None]:
    """Keep one page open; raises `web.HTTPServiceUnavailable` if too many are."""
    if limit.locked():
        raise web.HTTPServiceUnavailable(text="too many pages are open\n")
    async with limit:
        yield


async def _stream(
    request: web.Request, documents: AsyncGenerator[dict[str, Any], None]
) -> web.StreamResponse:
    """Send documents as server-sent events, each after the client has taken the one before.

    A slow client gets fewer documents.
    """
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    try:
        async with aclosing(documents):
            await response.prepare(request)
            async for document in documents:
                event = _make_event(document)
                for at in range(0, len(event), _PIECE):
                    async with asyncio.timeout(_WRITE_PATIENCE):
                        await response.write(event[at : at + _PIECE])
    except (Rejected, ConnectionLost, OperatorError, ValueError) as error:
        is_final = not isinstance(error, _AWAY)  # or else the page asks again
        await response.write(_make_event({"trouble": str(error), "final": is_final}))
    except (ConnectionResetError, TimeoutError):
        pass  # the page was closed, or its browser sleeps
    return response
