"""Fluent Bit as a peer: in_tail with a database, chunks on disk, the forward protocol with its acknowledgements, out_file.

Client: chunks are files with a checksum, synced; a chunk goes when the server has acknowledged it, and is tried without end.
in_tail keeps offsets by inode in a database that is synced at each write, and finds renamed files in it.
Server: in_forward acknowledges a chunk when it is stored in its own folder of chunks, synced; out_file, which knows no fsync, is
tried without end, too.
Sources: Fluent Bit's manual on buffering and storage, in_tail (db.sync, rotate_wait), forward (require_ack_response), out_file.
"""

from tests.chaos.peers.peer import Client, Peer, Server

__all__ = ["FLUENT_BIT"]

_SERVICE = """[SERVICE]
    Flush                     0.5
    Grace                     10
    Daemon                    off
    Log_Level                 warn
    HTTP_Server               off
    scheduler.base            1
    scheduler.cap             3
    storage.path              {state}/chunks
    storage.sync              full
    storage.checksum          on
    storage.max_chunks_up     128
    storage.backlog.mem_limit 64M
"""

_CLIENT = """[INPUT]
    Name              tail
    Tag               {host}.log
    Path              {logs}/*.log
    Key               line
    Read_from_Head    on
    Refresh_Interval  1
    Rotate_Wait       60
    Buffer_Chunk_Size 512k
    Buffer_Max_Size   4M
    Skip_Long_Lines   off
    Skip_Empty_Lines  off
    DB                {state}/offsets.db
    DB.Sync           full
    DB.Locking        on
    storage.type      filesystem
[OUTPUT]
    Name                 forward
    Match                *
    Host                 {server.host}
    Port                 {server.port}
    Require_ack_response on
    Retry_Limit          no_limits
    Workers              1
    net.connect_timeout  5
    net.io_timeout       10
    net.keepalive        on
"""

_SERVER = """[INPUT]
    Name            forward
    Listen          {listen.host}
    Port            {listen.port}
    Buffer_Max_Size 64M
    storage.type    filesystem
[OUTPUT]
    Name        file
    Match       *
    Path        {output}
    Format      template
    Template    {{line}}
    Retry_Limit no_limits
    Workers     1
"""


def _client(client: Client) -> str:
    return _SERVICE.format(state=client.state) + _CLIENT.format(
        host=client.host, logs=client.logs, state=client.state, server=client.server
    )


def _server(server: Server) -> str:
    return _SERVICE.format(state=server.state) + _SERVER.format(
        output=server.output, listen=server.listen
    )


FLUENT_BIT = Peer(
    name="fluent-bit",
    program="fluent-bit",
    client=_client,
    server=_server,
    words=lambda configuration, _: ["--quiet", "--config", configuration],
    version="--version",
)
