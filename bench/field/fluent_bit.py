"""Fluent Bit as a peer: in_tail with a database, forward with acknowledgements, out_file.

Chunks are in memory at both ends, so many that reading rarely waits for sending, and sent five
times a second; a chunk goes when the server has acknowledged it, and is tried without end. in_tail
keeps offsets by inode in a database, and finds renamed files in it. out_file, which knows no fsync,
is tried without end, too. Compressed: as fast, with what is sent in gzip. Sources: Fluent Bit's
manual on buffering and storage, in_tail (db.sync, rotate_wait), forward (require_ack_response),
out_file.
"""

from bench.field.peer import Client, Peer, Server

_SERVICE = """[SERVICE]
    Flush                     0.2
    Grace                     10
    Daemon                    off
    Log_Level                 warn
    HTTP_Server               off
    scheduler.base            1
    scheduler.cap             3
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
    DB.Sync           normal
    DB.Locking        on
    Mem_Buf_Limit 256M
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
    {compress}
"""

_SERVER = """[INPUT]
    Name            forward
    Listen          {listen.host}
    Port            {listen.port}
    Buffer_Max_Size 64M
    Mem_Buf_Limit 256M
[OUTPUT]
    Name        file
    Match       *
    Path        {output}
    Format      template
    Template    {{line}}
    Retry_Limit no_limits
    Workers     1
"""


def _peer(compress: str = "") -> Peer:
    def configure_client(client: Client) -> str:
        return _SERVICE + _CLIENT.format(
            host=client.host,
            logs=client.logs,
            state=client.state,
            server=client.server,
            compress=compress,
        )

    def configure_server(server: Server) -> str:
        return _SERVICE + _SERVER.format(output=server.output, listen=server.listen)

    return Peer(
        name="fluent-bit",
        program="fluent-bit",
        client=configure_client,
        server=configure_server,
        arguments=lambda configuration, _: ["--quiet", "--config", configuration],
        version="--version",
    )


FLUENT_BIT_FAST = _peer()
FLUENT_BIT_COMPRESSED = _peer("Compress gzip")
