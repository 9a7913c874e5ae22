"""nats-server as a child: its folder, its configuration, its life. Knows what it is told of streams, and no more."""
