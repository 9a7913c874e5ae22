"""Who may do what at the broker: credentials, accounts, permissions, certificates."""
