"""Fluent Bit as a peer: in_tail with a database, forward with acknowledgements, out_file.

Safe. Client: chunks are files with a checksum, synced; a chunk goes when the server has
acknowledged it, and is tried without end. in_tail keeps offsets by inode in a database that is
synced at each write, and finds renamed files in it. Server: in_forward acknowledges a chunk when it
is stored in its own folder of chunks, synced; out_file, which knows no fsync, is tried without end,
too. Fast. Chunks in memory at both ends, so many that reading rarely waits for sending, and sent
five times a second; still acknowledged. Compressed. As fast, with what is sent in gzip. Sources:
Fluent Bit's manual on buffering and storage, in_tail (db.sync, rotate_wait), forward
(require_ack_response), out_file.
"""

from dataclasses import dataclass, replace

from bench.field.peer import Client, Peer, Server

_SERVICE = """[SERVICE]
    Flush                     {flush}
    Grace                     10
    Daemon                    off
    Log_Level                 warn
    HTTP_Server               off
    scheduler.base            1
    scheduler.cap             3
"""

_CHUNKS_ON_DISK = """    storage.path              {state}/chunks
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
    DB.Sync           {sync}
    DB.Locking        on
    {storage}
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
    {storage}
[OUTPUT]
    Name        file
    Match       *
    Path        {output}
    Format      template
    Template    {{line}}
    Retry_Limit no_limits
    Workers     1
"""


@dataclass(frozen=True, slots=True)
class _Setting:
    """Settings: seconds between flushes, where chunks are, how offsets are synced, compression."""

    flush: float
    chunks: str
    storage: str
    sync: str
    compress: str = ""

    def client(self, client: Client) -> str:
        return self._service(client) + _CLIENT.format(
            host=client.host,
            logs=client.logs,
            state=client.state,
            server=client.server,
            storage=self.storage,
            sync=self.sync,
            compress=self.compress,
        )

    def server(self, server: Server) -> str:
        return self._service(server) + _SERVER.format(
            output=server.output, listen=server.listen, storage=self.storage
        )

    def _service(self, end: Client | Server) -> str:
        return _SERVICE.format(flush=self.flush) + self.chunks.format(state=end.state)


def _peer(setting: _Setting) -> Peer:
    return Peer(
        name="fluent-bit",
        program="fluent-bit",
        client=setting.client,
        server=setting.server,
        arguments=lambda configuration, _: ["--quiet", "--config", configuration],
        version="--version",
    )


FLUENT_BIT = _peer(_Setting(0.5, _CHUNKS_ON_DISK, "storage.type filesystem", "full"))
_FAST = _Setting(0.2, "", "Mem_Buf_Limit 256M", "normal")
FLUENT_BIT_FAST = _peer(_FAST)
FLUENT_BIT_COMPRESSED = _peer(replace(_FAST, compress="Compress gzip"))
