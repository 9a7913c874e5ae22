"""`logreceiver table` writes the lines of all streams into a Delta table.

    streams ──ranges──▶ Spark tasks ──Parquet files──▶ driver ── one commit ──▶ lines/_delta_log
                                                          └── progress ──▶ LOGS_OFFSETS (retention)

A folder or a prefix of an object store holds two tables: `lines`, and `gaps` with a row for each
message that cannot be read and for lines that were removed before they were written. The log of
`lines` is the only truth about progress: each commit has a transaction
`logship/<stream>/<created>` for each stream, whose version is the first sequence not written.

Each step, and what happens if we die there (tests kill us at the fault points in brackets):

1. Claim the table in KV [`table_claimed`]: the next start claims again. Retention keeps lines.
2. Tasks write files under new names and sync them [`table_written`, `table_synced`]: no commit
   names the files, so a vacuum deletes them.
3. Commit the files of `gaps` [`table_gaps`]: its transactions say which unreadable messages are
   there. After a kill, removed sequences in the middle may be there twice, never not at all.
4. Commit the files of `lines` for all streams at once [`table_committed`]: the transactions are in
   the log, or the next start reads the same lines again.
5. Sync the log, then write progress to KV [`table_stored`]: KV is behind, so retention keeps more
   than needed.
6. Merge files of closed hours and days, in both tables, and exchange them in one commit
   [`table_merged`, `table_compacted`]: the new files are without a commit, or in place of the old
   ones. Files that are damaged or missing are left as they are.
7. Vacuum: sync the log first, then delete files that no version within the grace names
   [`table_vacuumed`]: the next vacuum goes on.

A commit names the version after the one that was read on the same handle, and is never tried again
by delta-rs. If somebody else has committed that version, the commit fails, the table is read again,
and the transactions say whether our round is in it: so two writers never write a line twice. The
second one of a broker is refused by the claim, a compare-and-set in KV, as for a partition.

A hostile host can send messages that cannot be read (a row in `gaps` each, with the bytes), lines
that are not UTF-8 (`raw` has the bytes), and paths of any form (they are values, never file names).
It cannot name a partition: that is the date of storage, by the broker's clock.

A task needs at most 600 MiB, whatever waits and whatever hosts send: 165 for itself, then messages
of one file as stored (`columns.FILE_BYTES`) and rows of one group (`columns.GROUP_BYTES`), or a
page of each file that is merged (`compact`). Rows are counted as well as bytes, and what cannot be
read goes to files of `gaps` at once. It gives back all but the 165 when it ends (`memory`). The
driver has names of files.

A stream that was created again has another `created`, and is read from its start; one that was
restored from a backup is read on from where both have the same messages. If lines between our
progress and the first message were removed, `gaps` and the log say so. A table restored from a
backup is behind: its own transactions say from where to read on.
"""
