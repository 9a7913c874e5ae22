"""syslog-ng as a peer: wildcard-file, a reliable disk buffer, a file for each host.

Safe. Client: the buffer keeps a line on disk until it was sent, positions in the persist file move
when it has taken the line, and flow control stops the reading where it is full. Folders are polled,
since with inotify version 3.38 loses the end of a file that is rotated, without any fault, or ends
with a failed assertion (`log_pipe_queue`). Lines travel in frames with their length (RFC 6587) over
TCP: the open source edition has no acknowledgement of the receiver's (ALTP is of the premium
edition). Server: each line is written at once, with fsync; flow control stops the reading from
clients where it cannot be. `*.log*`, so that what was rotated while nobody looked is found, repeats
files whole without any fault. Fast. Thousands of lines are read, on their way, and written and
synced at a time; with the disk buffer as above, or without. What may be on its way of a file, or of
a connection, is a share of the window, divided by max-files and max-connections, which are
therefore few. Sources: syslog-ng's administration guide on wildcard-file,
disk-buffer(reliable(yes)), flags(flow-control) and file(fsync).
"""

from dataclasses import dataclass

from bench.field.peer import Client, Peer, Server

_OPTIONS = """@version: 3.38
options {{
  keep-hostname(yes); chain-hostnames(no); use-dns(no); use-fqdn(no); normalize-hostnames(no);
  log-msg-size(4194304); stats-freq(0); mark-freq(0); time-reopen(1); flush-lines({lines});
  create-dirs(no);
}};
"""

_CLIENT = """source logs {{
  wildcard-file(
    base-dir("{logs}") filename-pattern("*.log") recursive(no) max-files({sharers})
    monitor-method("poll")
    follow-freq(0.2) log-iw-size({window}) log-fetch-limit({fetched})
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
    log-iw-size({window}) log-fetch-limit({fetched}) so-keepalive(yes)
    flags(empty-lines)
  );
}};
destination files {{
  file("{output}/${{HOST}}.log" template("${{MESSAGE}}\\n") fsync(yes) flush-lines({lines})
    time-reap(0));
}};
log {{ source(hosts); destination(files); flags(flow-control); }};
"""


_ON_DISK = (
    'disk-buffer(reliable(yes) disk-buf-size(104857600) mem-buf-size(10485760) dir("{state}"))'
)
_IN_MEMORY = "log-fifo-size(2000000)"
_LEAST_WINDOW = 100  # lines of a file; syslog-ng takes no less


@dataclass(frozen=True, slots=True)
class _Setting:
    """The client's buffer; lines read, written and synced at a time, and under way; files."""

    buffer: str
    fetched: int
    lines: int
    window: int
    sharers: int

    def client(self, client: Client) -> str:
        return _OPTIONS.format(lines=self.lines) + _CLIENT.format(
            logs=client.logs,
            host=client.host,
            server=client.server,
            buffer=self.buffer.format(state=client.state),
            fetched=self.fetched,
            sharers=(files := max(self.sharers, len(list(client.logs.glob("*.log"))))),
            window=max(self.window, files * _LEAST_WINDOW),
        )

    def server(self, server: Server) -> str:
        return _OPTIONS.format(lines=self.lines) + _SERVER.format(
            output=server.output,
            listen=server.listen,
            fetched=self.fetched,
            lines=self.lines,
            window=self.window,
            sharers=self.sharers,
        )


def _peer(setting: _Setting) -> Peer:
    return Peer(
        name="syslog-ng",
        program="syslog-ng",
        client=setting.client,
        server=setting.server,
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


SYSLOG_NG = _peer(_Setting(_ON_DISK, fetched=100, lines=1, window=100_000, sharers=1_000))
SYSLOG_NG_FAST = _peer(_Setting(_ON_DISK, fetched=10_000, lines=10_000, window=200_000, sharers=10))
SYSLOG_NG_IN_MEMORY = _peer(
    _Setting(_IN_MEMORY, fetched=10_000, lines=10_000, window=200_000, sharers=10)
)
