"""Purge received messages before a stream or the broker's disk is full.

The limits of the broker's streams and the receiver's files, with their defaults, and what happens
at each:

- `max_age` (1 day): nats-server deletes older messages, received or not (`broker/topology.py`).
- `max_bytes` (as much as fits on the disk): a stream takes no more. With `discard` = `new` (the
  default) hosts keep their lines and wait; with `old` nats-server deletes the oldest messages.
- 90 % of `max_bytes`, less if the limit is small (fixed): `logbroker run` purges received messages
  down to eight ninths of that. It polls each stream twice a second (`worker.py`, `decide.py`).
- `reserve` (5 % of the disk, at most 20 GiB): `logbroker run` purges received messages when
  free space is below half of the reserve (`decide.py`).
- `keep`, `keep_age`, `keep_bytes` of a receiver (0 is no limit, the default): each minute, and when
  a file is closed, logreceiver deletes the oldest closed files (`receiver/storage/segments.py`).
- 1 GiB or 100,000 files of quarantine for each partition (fixed): logreceiver deletes the oldest
  ones when it adds one (`receiver/storage/quarantine.py`).

`logbroker purge` deletes messages on request. It and the worker complete the snapshots of shippers
first (`snapshots.py`), so that no line is shipped twice.
"""
