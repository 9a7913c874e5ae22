"""Delete received messages before a stream or the broker's disk is full.

| limit | option | enforced by |
|---|---|---|
| age of messages | `logbroker --max-age` | nats-server: `max_age` of the stream, in `broker/topology.py` |
| size of a stream | `logbroker --max-bytes` | nats-server: `max_bytes`, `discard`, in `broker/topology.py` |
| 90 % of that size | none | `decide.py`: purge what is received, down to 80 % |
| free space on disk | `logbroker --reserve` | `decide.py`: purge what is received, below half of it |
| received files | `logreceiver --keep`, `--keep-age`, `--keep-bytes` | `receiver/storage/segments` |

`decide` says which messages to purge, `purge` purges them, `snapshots` saves the shippers' positions
before that, and `worker` does it for each stream of `logbroker run`. `logbroker purge` is
`purge.plan_purges` and `purge.run_purges`.
"""
