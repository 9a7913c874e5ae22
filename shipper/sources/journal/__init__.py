"""The systemd journal as a source: `source.JournalSource` is the front door.

A position is an entry's sequence number. Each journal (`seqnum_id`) is a file of its own to
shipper and receiver, all under one path: `journal`, or `journal:<folder>`.

1. A scan reads the headers of the journal files (`headers`): which journals there are, and the
   numbers of the first and the last entry of each file.
2. While a journal has entries behind the position, `journalctl` prints those of its files from
   the position on, and ends (`process`). Each run is about one journal only: numbers ascend in a
   journal whatever the clock does, but across journals `journalctl` merges by time, and passes
   over entries that are older than what it has printed. `--after-cursor` passes over an entry too
   many if the one at the cursor was vacuumed, so a run begins at the entry before the position.
3. `entries` and `format` make lines of what it prints. Filters are ours: `journalctl` knows no
   exclusion, resolves globs of units only when it starts, and does not say what it left out.
4. `holes` decides whether numbers that are missing are lost entries. A section behind a loss begins
   behind it, so the receiver reports a gap; other missing numbers are covered by a section.
"""
