"""What a shipper reads: files, and standard input."""
