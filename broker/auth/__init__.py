"""Who may do what at the broker: the credential store, accounts, permissions, certificates."""
