"""`logshipper cheat`."""

from nats_logship.app.cheat import cheat_command

cheat = cheat_command("""
# before the first start: which files would be followed, and does the broker answer?
logshipper check --file '/var/log/nginx/*.log' --server nats://broker1:4222
# ship the lines of these files, and go on with new ones
logshipper --file '/var/log/nginx/*.log' --server nats://broker1:4222
# the same with a credential file, which also has the broker's address
logshipper --config host-web01.toml --file '/var/log/nginx/*.log'
# how far each file is shipped, and what holds it back
logshipper status
# the systemd journal, of some units
logshipper --journal --unit 'nginx*' --priority info
# keep the lines of a stack trace together
logshipper --file /srv/app/app.log --records java
# leave lines out
logshipper --file /srv/app/app.log --exclude-lines '"GET /healthz'
# the output of a program
bash -o pipefail -c 'tcpdump -ln port 53 | logshipper --file - --host web01-dns'
# slow down beside other traffic
logshipper --file '/var/log/**/*.log' --max-rate 5MB/s
# ship what the files have now, and end
logshipper --file '/srv/archive/*.gz' --once
""")
