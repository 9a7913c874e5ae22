"""What of nats-py's internals is overridden, called or read, in one place: whoever raises its version reads this first.

nats-py's public API is used for all else. Two things cost too much or lose data there (2.16, measured by bench/ and in
tests/broker/client/): a message takes 15 microseconds and five copies of its bytes to arrive, here 1.5 and two (receiving.py);
a round of some MiB takes three times its size in memory and a fifth of the shipper's processor time to be sent (sending.py).
The rest keeps a connection honest: a read loop that would end in silence at text that is not UTF-8, a line that is dead but looks
connected, a server that would be talked to in the clear. Beside these names `nats.aio.client.DEFAULT_BUFFER_SIZE` is set
(client.py), and the parser is given whole lines (receiving.py). A test compares this list with the code.
"""

__all__ = ["RELIED_ON"]

RELIED_ON = {
    # overridden: nats-py calls them
    "_build_message": "takes a subject that is not UTF-8",
    "_connect_command": "sends nothing in the clear where TLS is wanted; its last word before CONNECT",
    "_connect_to_server": "puts our line under it",
    "_parse_header_lines": "at a third of the cost",
    "_ping_interval": "gives up a line that moves no more, rather than one that is slow",
    "_process_headers": "takes headers that are not ASCII",
    "_process_info": "begins with TLS where the server only allows it; counts the servers of a cluster",
    "_process_op_err": "ends a dead line without sending first; called as well, by the pinging",
    "_process_pong": "survives the answer to a flush that was given up",
    "_remove_sub": "forgets what was tapped",
    "_send_ping": "pings behind what waits to be sent; called as well, by the pinging",
    "_send_publish": "sends large messages uncopied",
    # called
    "_process_msg": "hands on what is not tapped",
    # read or set
    "_id": "the number of a subscription, by which messages are told apart",
    "_pending": "what waits to be sent",
    "_pending_data_size": "its bytes",
    "_pings_outstanding": "which a PONG sets to 0",
    "_pongs": "who waits for a PONG",
    "_ps": "the parser, for which ours is put",
    "_public_nkey": "for a key that nats-py does not hold",
    "_transport": "the line",
}
"""The private names of nats-py that are relied on, each with what for."""
