"""syslog-ng as a peer: wildcard-file, a reliable disk buffer or memory, a file for each host.

The buffer keeps a line until it was sent, positions in the persist file move when it has taken the
line, and flow control stops the reading where it is full. Folders are polled, since with inotify
version 3.38 loses the end of a file that is rotated, without any fault. Lines travel in frames with
their length (RFC 6587) over TCP: the open source edition has no acknowledgement of the receiver's
(ALTP is of the premium edition). Thousands of lines are read, on their way, and written and synced
at a time. What may be on its way of a file, or of a connection, is a share of the window, divided
by max-files and max-connections, which are therefore few. Sources: syslog-ng's administration guide
on wildcard-file, disk-buffer(reliable(yes)), flags(flow-control) and file(fsync).
"""

from bench.field.peer import Client, Peer, Server

_OPTIONS = """@version: 3.38
options {
  keep-hostname(yes); chain-hostnames(no); use-dns(no); use-fqdn(no); normalize-hostnames(no);
  log-msg-size(4194304); stats-freq(0); mark-freq(0); time-reopen(1); flush-lines(10000);
  create-dirs(no);
};
"""

_CLIENT = """source logs {{
  wildcard-file(
    base-dir("{logs}") filename-pattern("*.log") recursive(no) max-files({sharers})
    monitor-method("poll")
    follow-freq(0.2) log-iw-size({window}) log-fetch-limit(10000)
    flags(no-parse, empty-lines) host-override("{host}")
  );
}};
destination central {{
  syslog(
    "{server.host}" port({server.port}) transport("tcp") template("${{MESSAGE}}") so-keepalive(yes)
    {buffer}
  );
}};
log {{ source(logs); destination(central); flags(flow-control); }};
"""

_SERVER = """source hosts {{
  syslog(
    ip("{listen.host}") port({listen.port}) transport("tcp") max-connections({sharers})
    log-iw-size({window}) log-fetch-limit(10000) so-keepalive(yes)
    flags(empty-lines)
  );
}};
destination files {{
  file("{output}/${{HOST}}.log" template("${{MESSAGE}}\\n") fsync(yes) flush-lines(10000)
    time-reap(0));
}};
log {{ source(hosts); destination(files); flags(flow-control); }};
"""


_ON_DISK = (
    'disk-buffer(reliable(yes) disk-buf-size(104857600) mem-buf-size(10485760) dir("{state}"))'
)
_IN_MEMORY = "log-fifo-size(2000000)"
_WINDOW, _SHARERS = 200_000, 10  # lines under way; files or connections that share them
_LEAST_WINDOW = 100  # lines of a file; syslog-ng takes no less


def _configure_server(server: Server) -> str:
    return _OPTIONS + _SERVER.format(
        output=server.output, listen=server.listen, window=_WINDOW, sharers=_SHARERS
    )


def _peer(buffer: str) -> Peer:
    """Return the peer by the client's buffer."""

    def configure_client(client: Client) -> str:
        files = max(_SHARERS, len(list(client.logs.glob("*.log"))))
        return _OPTIONS + _CLIENT.format(
            logs=client.logs,
            host=client.host,
            server=client.server,
            buffer=buffer.format(state=client.state),
            sharers=files,
            window=max(_WINDOW, files * _LEAST_WINDOW),
        )

    return Peer(
        name="syslog-ng",
        program="syslog-ng",
        client=configure_client,
        server=_configure_server,
        arguments=lambda configuration, state: [
            "--foreground",
            "--no-caps",
            f"--cfgfile={configuration}",
            f"--persist-file={state / 'persist'}",
            f"--pidfile={state / 'pid'}",
            f"--control={state / 'control'}",
        ],
        version="--version",
        packages=("syslog-ng-core",),
        modules="usr/lib/syslog-ng/*.*",
        module_option="--module-path=",
    )


SYSLOG_NG_FAST = _peer(_ON_DISK)
SYSLOG_NG_IN_MEMORY = _peer(_IN_MEMORY)
