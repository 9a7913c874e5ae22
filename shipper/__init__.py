"""`logshipper`: ships the lines of a host's files to the broker, each acknowledged."""
