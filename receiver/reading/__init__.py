"""What tasks read from the broker, over connections that stay open in reused workers. Writes nothing."""
