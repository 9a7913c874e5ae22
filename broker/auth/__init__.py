"""Credentials, their rights (`permissions`), NATS accounts with these rights, and certificates."""
