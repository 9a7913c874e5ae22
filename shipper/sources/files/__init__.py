"""The files of a host: found, recognised through rotations, and read. Knows no broker.

The front door is `follower.Follower`, with `paths.Selection` for what to follow; it gives
`block.Block`s and `notices.Notice`s. How a rotation runs: `tracker`. What a file is: `decide`.
"""
