"""Delete received messages before a stream or the broker's disk is full.

| limit | set by | enforced by |
|---|---|---|
| age of messages | `--max-age` | nats-server, as `broker/topology.py` declares the stream |
| size of a stream | `--max-bytes`, `--discard` | the same |
| 90 % of that size | fixed | `decide.py`: purge received messages, down to 80 % |
| free space on the disk | `--reserve` | `decide.py`: purge received messages, below half of it |
| files of a receiver | `logreceiver --keep*` | `receiver/storage/segments.py` |

`decide` says which messages to purge, `purge` purges them, `snapshots` saves the shippers'
positions before that, and `worker` does it for each stream of `logbroker run`. `logbroker purge`
calls `purge.plan_purges` and `purge.run_purges`.
"""
