"""What all programs of logship share: the contract on the wire, a connection, a program's frame."""
