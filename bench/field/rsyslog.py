"""rsyslog as a peer: imfile, RELP with its acknowledgements, a file for each host.

Safe. Client: every line goes into a queue that is on disk only, with a checkpoint and an fsync for
each of them, and is tried without end. imfile writes its state file after what it read was handed
to that queue, at once. RELP keeps what is not acknowledged in memory, so that its window is what a
killed client forgets: it is small here. Server: imrelp acknowledges a line when it was handed on;
with a direct queue that is when omfile has written it, with fsync. What else was tried with version
8.2302 and did worse: a client without a queue, whose lines the rotation overtakes; a server with a
queue on disk, which loses more where the disk is full or cannot be written, as omfile gives up what
it cannot write in spite of resumeRetryCount -1; `*.log*`, so that what was rotated while nobody
looked is found, repeats thousands of lines without any fault. Fast. Queues in memory at both ends,
batches of 1,024 lines and a RELP window of 5,000: with one that a batch fills, the client waits for
an acknowledgement that the server's kernel delays, 40 ms each time. omfile writes a batch at once
and syncs it (of its 4 KiB by default each would be synced). A line is acknowledged when it is in
the server's queue. Fleet: as fast, but nothing is synced, and buffers are small, since thousands of
files are open. Sources: rsyslog's documentation of imfile (persistStateAfterSubmission), queues
("ultra-reliable": checkpointInterval 1, syncQueueFiles), omrelp (windowSize) and omfile (sync).
"""

from dataclasses import dataclass, replace

from bench.field.peer import Client, Peer, Server

_GLOBAL = """global(
  workDirectory="{state}"
  localHostname="{host}"
  maxMessageSize="4m"
  parser.escapeControlCharactersOnReceive="off"
  parser.dropTrailingLFOnReception="off"
  shutdown.queue.doubleSize="on"
)
"""

_CLIENT = """module(load="imfile" mode="inotify")
module(load="omrelp")
input(
  type="imfile" file="{logs}/*.log" tag="-" ruleset="out"
  persistStateInterval="0" persistStateAfterSubmission="on"
  addMetadata="off" addCeeTag="off" escapeLF="off" readMode="0" reopenOnTruncate="on"
  needParse="off"
)
template(name="carried" type="list") {{
  constant(value="<134>1 ")
  property(name="timereported" dateFormat="rfc3339")
  constant(value=" {host} - - - - ")
  property(name="msg")
}}
ruleset(
  name="out" {queue} queue.timeoutEnqueue="2000000000" queue.dequeueBatchSize="{batch}"
) {{
  action(
    type="omrelp" target="{server.host}" port="{server.port}" template="carried"
    windowSize="{window}" timeout="10" conn.timeout="5"
    action.resumeRetryCount="-1" action.resumeInterval="1" action.resumeIntervalMax="2"
  )
}}
"""

_SERVER = """module(load="imrelp" ruleset="in")
template(name="file" type="string" string="{output}/%hostname%.log")
template(name="line" type="list") {{
  property(name="msg")
  constant(value="\\n")
}}
input(type="imrelp" port="{listen.port}" address="{listen.host}" maxDataSize="5m" keepAlive="on")
ruleset(name="in" {queue} queue.dequeueBatchSize="{batch}" parser="rsyslog.rfc5424") {{
  action(
    type="omfile" dynaFile="file" template="line" dynaFileCacheSize="10000"
    asyncWriting="off" flushOnTXEnd="on" sync="{sync}" ioBufferSize="{buffer}"
    action.resumeRetryCount="-1" action.resumeInterval="1" action.resumeIntervalMax="2"
  )
}}
"""

_ON_DISK = (
    'queue.type="Disk" queue.filename="out" queue.maxDiskSpace="100m" queue.maxFileSize="4m" '
    'queue.checkpointInterval="1" queue.syncQueueFiles="on" queue.saveOnShutdown="on"'
)
_DIRECT = 'queue.type="Direct"'
_IN_MEMORY = 'queue.type="LinkedList" queue.size="100000"'


@dataclass(frozen=True, slots=True)
class _Setting:
    """Both ends' queues, lines taken from a queue at a time, unacknowledged lines, write size."""

    client_queue: str
    server_queue: str
    batch: int
    window: int
    buffer: str
    sync: str = "on"

    def client(self, client: Client) -> str:
        text = _GLOBAL.format(state=client.state, host=client.host)
        return text + _CLIENT.format(
            logs=client.logs,
            host=client.host,
            server=client.server,
            queue=self.client_queue,
            window=self.window,
            batch=self.batch,
        )

    def server(self, server: Server) -> str:
        text = _GLOBAL.format(state=server.state, host="central")
        return text + _SERVER.format(
            output=server.output,
            listen=server.listen,
            queue=self.server_queue,
            batch=self.batch,
            buffer=self.buffer,
            sync=self.sync,
        )


def _peer(setting: _Setting) -> Peer:
    return Peer(
        name="rsyslog",
        program="rsyslogd",
        client=setting.client,
        server=setting.server,
        arguments=lambda configuration, _: ["-n", "-iNONE", "-f", configuration],
        version="-v",
        packages=("rsyslog", "rsyslog-relp"),
        modules="usr/lib/*/rsyslog",
        module_option="-M",
    )


RSYSLOG = _peer(_Setting(_ON_DISK, _DIRECT, 1, 1, "4k"))
_FAST = _Setting(_IN_MEMORY, _IN_MEMORY, 1024, 5_000, "1m")
RSYSLOG_FAST = _peer(_FAST)
RSYSLOG_FLEET = _peer(replace(_FAST, buffer="4k", sync="off"))
