"""`logreceiver search` finds lines: in a table or received files, and in the stream what is newer.

    table, a version of it ──next sequence of each stream──┐
    received files, as stored ──next sequence of each partition──▶ stream, from there on

`table` and `files` search what is older, `newer` the streams, `find` joins them: each line comes
once, and none is missing. The older side is read first, and says from where on the stream is read.
If the stream loses its beginning meanwhile, because a table was written further, the lines between
are read from the newer version of the table.
"""
