"""`logreceiver cheat`."""

from nats_logship.app.cheat import cheat_command

cheat = cheat_command("""
# receive everything, one file for each host
logreceiver --partition all --output /srv/logs --server nats://broker1:4222
# one file for each source file of each host
logreceiver --partition all --output /srv/logs --path-template '{host}/{file}'
# a new file each day, compressed, deleted after 30 days
logreceiver --partition all --output /srv/logs --rotate-every 1d --compress zstd --keep-age 30d
# receive what waits, and end
logreceiver --partition all --output /srv/logs --once
# who receives each partition, how far behind, and why it is blocked
logreceiver status --output /srv/logs
# compare the received files with the stream, byte by byte
logreceiver verify --output /srv/logs
# the last hour of some hosts, from the stream
logreceiver replay --since 1h --host 'web*' --output -
# all lines in a Delta table for SQL
logreceiver table --table /srv/logs/table
# from where partitions are received
logreceiver offsets show
# receive the stream again from its first line: into an empty folder
logreceiver offsets set --partition all --to earliest
""")
