"""The contract between shippers, brokers and receivers: subjects, messages and bucket entries."""
