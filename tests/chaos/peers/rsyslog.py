"""rsyslog as a peer: imfile, RELP with its acknowledgements, a file for each host.

Client: every line goes into a queue that is on disk only, with a checkpoint and an fsync for each of them, and is tried
without end. imfile writes its state file after what it read was handed to that queue, at once. RELP keeps what is not
acknowledged in memory, so that its window is what a killed client forgets: it is small here.
Server: imrelp acknowledges a line when it was handed on; with a direct queue that is when omfile has written it, with fsync.
What else was tried with version 8.2302 and did worse: a client without a queue, whose lines the rotation overtakes; a server with
a queue on disk, which loses more where the disk is full or cannot be written, as omfile gives up what it cannot write in spite
of resumeRetryCount -1; `*.log*`, so that what was rotated while nobody looked is found, repeats thousands of lines without any
fault.
Sources: rsyslog's documentation of imfile (persistStateAfterSubmission), queues ("ultra-reliable": checkpointInterval 1,
syncQueueFiles), omrelp (windowSize) and omfile (sync).
"""

from tests.chaos.peers.peer import Client, Peer, Server

__all__ = ["RSYSLOG"]

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
  addMetadata="off" addCeeTag="off" escapeLF="off" readMode="0" reopenOnTruncate="on" needParse="off"
)
template(name="carried" type="list") {{
  constant(value="<134>1 ")
  property(name="timereported" dateFormat="rfc3339")
  constant(value=" {host} - - - - ")
  property(name="msg")
}}
ruleset(
  name="out" queue.type="Disk" queue.filename="out" queue.maxDiskSpace="100m" queue.maxFileSize="4m"
  queue.checkpointInterval="1" queue.syncQueueFiles="on" queue.saveOnShutdown="on"
  queue.timeoutEnqueue="2000000000" queue.dequeueBatchSize="{batch}"
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
ruleset(name="in" queue.type="Direct" parser="rsyslog.rfc5424") {{
  action(
    type="omfile" dynaFile="file" template="line" dynaFileCacheSize="1000"
    asyncWriting="off" flushOnTXEnd="on" sync="on"
    action.resumeRetryCount="-1" action.resumeInterval="1" action.resumeIntervalMax="2"
  )
}}
"""

_WINDOW = 1
_BATCH = 1


def _client(client: Client) -> str:
    words = _GLOBAL.format(state=client.state, host=client.host)
    return words + _CLIENT.format(
        logs=client.logs, host=client.host, server=client.server, window=_WINDOW, batch=_BATCH
    )


def _server(server: Server) -> str:
    words = _GLOBAL.format(state=server.state, host="central")
    return words + _SERVER.format(output=server.output, listen=server.listen)


RSYSLOG = Peer(
    name="rsyslog",
    program="rsyslogd",
    client=_client,
    server=_server,
    words=lambda configuration, _: ["-n", "-iNONE", "-f", configuration],
    version="-v",
    packages=("rsyslog", "rsyslog-relp"),
    modules="usr/lib/*/rsyslog",
    module_option="-M",
)
