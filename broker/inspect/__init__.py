"""What an operator sees of a broker. All of it only reads.

`collect` asks the broker and fills the status document (`status`). `checks`, `top`,
`metrics` and the console are made of that document. `hosts` lists hosts, `tail` and `message` show
lines, `events` shows events.
"""
