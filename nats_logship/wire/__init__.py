"""The wire contract: what both ends of the suite may import to read and write what the stream holds."""
