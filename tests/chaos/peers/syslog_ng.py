"""syslog-ng as a peer: wildcard-file, a reliable disk buffer, a file for each host.

Client: the buffer keeps a line on disk until it was sent, positions in the persist file move when it has taken the line, and
flow control stops the reading where it is full. Folders are polled, since with inotify version 3.38 loses the end of a file
that is rotated, without any fault, or ends with a failed assertion (`log_pipe_queue`). Lines travel in frames with their length (RFC 6587) over TCP: the open source
edition has no acknowledgement of the receiver's (ALTP is of the premium edition).
Server: each line is written at once, with fsync; flow control stops the reading from clients where it cannot be.
`*.log*`, so that what was rotated while nobody looked is found, repeats files whole without any fault.
Sources: syslog-ng's administration guide on wildcard-file, disk-buffer(reliable(yes)), flags(flow-control) and file(fsync).
"""

from tests.chaos.peers.peer import Client, Peer, Server

__all__ = ["SYSLOG_NG"]

_OPTIONS = """@version: 3.38
options {{
  keep-hostname(yes); chain-hostnames(no); use-dns(no); use-fqdn(no); normalize-hostnames(no);
  log-msg-size(4194304); stats-freq(0); mark-freq(0); time-reopen(1); flush-lines(1); create-dirs(no);
}};
"""

_CLIENT = """source logs {{
  wildcard-file(
    base-dir("{logs}") filename-pattern("*.log") recursive(no) max-files(1000) monitor-method("poll")
    follow-freq(0.2) log-iw-size(100000) log-fetch-limit(100)
    flags(no-parse, empty-lines) host-override("{host}")
  );
}};
destination central {{
  syslog(
    "{server.host}" port({server.port}) transport("tcp") template("${{MESSAGE}}") so-keepalive(yes)
    disk-buffer(reliable(yes) disk-buf-size(104857600) mem-buf-size(10485760) dir("{state}"))
  );
}};
log {{ source(logs); destination(central); flags(flow-control); }};
"""

_SERVER = """source hosts {{
  syslog(
    ip("{listen.host}") port({listen.port}) transport("tcp") max-connections(1000)
    log-iw-size(100000) log-fetch-limit(100) so-keepalive(yes)
    flags(empty-lines)
  );
}};
destination files {{
  file("{output}/${{HOST}}.log" template("${{MESSAGE}}\\n") fsync(yes) flush-lines(1) time-reap(0));
}};
log {{ source(hosts); destination(files); flags(flow-control); }};
"""


def _client(client: Client) -> str:
    return _OPTIONS.format() + _CLIENT.format(
        logs=client.logs, host=client.host, state=client.state, server=client.server
    )


def _server(server: Server) -> str:
    return _OPTIONS.format() + _SERVER.format(output=server.output, listen=server.listen)


SYSLOG_NG = Peer(
    name="syslog-ng",
    program="syslog-ng",
    client=_client,
    server=_server,
    words=lambda configuration, state: [
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
