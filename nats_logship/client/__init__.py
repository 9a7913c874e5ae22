"""The connection to a broker: getting in, sending, receiving, and knowing when it is lost."""
