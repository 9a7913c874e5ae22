"""Credentials, their rights (`permissions`), the accounts made of them, and certificates."""
