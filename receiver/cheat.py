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
# what web01 said around 14:03, in the stream and in the received files
logreceiver search --host web01 --since 2026-11-29T14:02 --until 2026-11-29T14:05 --output /srv/logs
# all lines in a Delta table for SQL
logreceiver table --table /srv/logs/table
# from where partitions are received
logreceiver offsets show
# write all lines of the stream once more, into an empty folder
logreceiver replay --since earliest --output /srv/again
""")
