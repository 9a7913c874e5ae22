"""`logbroker cheat`."""

from nats_logship.app.cheat import cheat_command

cheat = cheat_command("""
# run a broker on this machine
logbroker run --store-dir /var/lib/logbroker
# is all well? ends with 0 to 3, as Nagios expects
logbroker check
# streams, their space, and how far behind each receiver is
logbroker status
# hosts that have sent nothing for an hour
logbroker hosts --silent 1h
# see lines of some hosts as they arrive
logbroker tail --host 'web*' --match ERROR
# look at everything in a browser: http://127.0.0.1:8080/
logbroker console
# a file with the secret of a host, of a receiver, of the console
logbroker credentials add host web01 --store-dir /var/lib/logbroker
# stop hosts for a while; their lines wait in their files
logbroker pause 'web*' --for 30m --reason "disk is replaced"
# copy everything while it runs, and keep the last seven copies
logbroker backup /srv/backup --keep 7
# delete lines that nobody will receive; shows them and asks first
logbroker purge --partition 3 --before 12h
""")
