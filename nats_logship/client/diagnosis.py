"""Explains for a person why a client could not connect."""

import ssl

from nats_logship.app.files import describe_os_error
from nats_logship.client.client import CONNECT_TIMEOUT, NO_TLS, BrokerClient

_NOT_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}  # of OpenSSL


def explain_failure(error: Exception, client: BrokerClient) -> str:
    """Return the reason for `error` of `client.open`, and what to do."""
    text = str(error).removeprefix("nats: ").strip("'") or type(error).__name__
    server = f"the {'broker' if client.is_broker else 'server'} at {client.address}"
    if isinstance(error, ssl.SSLError):
        return f"{server} answers, but {_explain_tls(error, text)}"
    if not client.is_reached:
        return f"no broker at {client.address}: {_explain_network(error, text)}"
    if isinstance(error, TimeoutError):
        return (
            f"{server} accepts the connection and sends nothing within {CONNECT_TIMEOUT} s; "
            "check that --server has the port for clients, or give --tls-first"
        )
    return f"{server} {_explain_broker(client, text)}"


def _explain_broker(client: BrokerClient, text: str) -> str:
    if "maximum" in text.lower():
        limits = "raise host_connections or receiver_connections"
        return f"has reached its connection limit: {text}; {limits}"
    if any(word in text.lower() for word in ("authorization", "authentication")):
        return f"refuses {client.access}: {text}"
    if client.is_broker:
        return f"ended the connection: {text}"
    return f"answers, but not as a broker: {text}; check --server"


def _explain_network(error: Exception, text: str) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_TIMEOUT} s"
    return describe_os_error(error) if isinstance(error, OSError) else text


def _explain_tls(error: ssl.SSLError, text: str) -> str:
    reason = getattr(error, "reason", "") or ""
    if reason in _NOT_TLS:
        return f"does not begin with TLS ({reason}); check --server, or leave out --tls-first"
    if NO_TLS in text:
        shown = NO_TLS.removeprefix("it ")
        return f"{shown}; leave out tls:// and the options of TLS, or set up TLS at the broker"
    shown = getattr(error, "verify_message", "") or reason or text
    return f"the TLS handshake fails: {shown}; check --server and --tls-ca, --tls-cert"
