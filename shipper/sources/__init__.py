"""What a shipper reads: files, and standard input, as blocks of lines. Knows no broker."""
