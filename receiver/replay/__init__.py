"""Lines once more, out of the stream into new places. Never touches offsets, consumers, or files of a receiver."""
