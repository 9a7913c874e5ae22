"""rsyslog as a peer: imfile, RELP with its acknowledgements, a file for each host.

Fast: queues in memory at both ends, batches of 1,024 lines and a RELP window of 5,000: with one
that a batch fills, the client waits for an acknowledgement that the server's kernel delays, 40 ms
each time. omfile writes a batch at once and syncs it (of its 4 KiB by default each would be
synced). A line is acknowledged when it is in the server's queue. Fleet: as fast, but nothing is
synced, and buffers are small, since thousands of files are open. Sources: rsyslog's documentation
of imfile, queues, omrelp (windowSize) and omfile (sync).
"""

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
  name="out" queue.type="LinkedList" queue.size="100000"
  queue.timeoutEnqueue="2000000000" queue.dequeueBatchSize="1024"
) {{
  action(
    type="omrelp" target="{server.host}" port="{server.port}" template="carried"
    windowSize="5000" timeout="10" conn.timeout="5"
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
ruleset(
  name="in" queue.type="LinkedList" queue.size="100000"
  queue.dequeueBatchSize="1024" parser="rsyslog.rfc5424"
) {{
  action(
    type="omfile" dynaFile="file" template="line" dynaFileCacheSize="10000"
    asyncWriting="off" flushOnTXEnd="on" sync="{sync}" ioBufferSize="{buffer}"
    action.resumeRetryCount="-1" action.resumeInterval="1" action.resumeIntervalMax="2"
  )
}}
"""


def _configure_client(client: Client) -> str:
    text = _GLOBAL.format(state=client.state, host=client.host)
    return text + _CLIENT.format(logs=client.logs, host=client.host, server=client.server)


def _peer(buffer: str, sync: str) -> Peer:
    """Return the peer by the size of omfile's writes, and whether it syncs them (on, off)."""

    def configure_server(server: Server) -> str:
        text = _GLOBAL.format(state=server.state, host="central")
        return text + _SERVER.format(
            output=server.output, listen=server.listen, buffer=buffer, sync=sync
        )

    return Peer(
        name="rsyslog",
        program="rsyslogd",
        client=_configure_client,
        server=configure_server,
        arguments=lambda configuration, _: ["-n", "-iNONE", "-f", configuration],
        version="-v",
        packages=("rsyslog", "rsyslog-relp"),
        modules="usr/lib/*/rsyslog",
        module_option="-M",
    )


RSYSLOG_FAST = _peer("1m", "on")
RSYSLOG_FLEET = _peer("4k", "off")
