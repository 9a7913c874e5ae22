"""The files of a host: found, recognised through rotations, and read. Knows no broker.

The front door is `follower.Follower`, with `paths.Selection` for what to follow; it gives
`block.Block`s and `notices.Notice`s. Its comment describes how a rotation runs. What a file is:
`decide`.

The words of these modules:

- *live path*: where a writer writes. A *rotated* file has left it; `app.log.1` is a *sibling*.
- *group*: a live path and its siblings, by their names now. An entry names its group.
- *home*: the live path whose writer wrote a file, wherever the file is now.
- *label*: the path in a file's cursors: its live path, or the path at which it was found.
- *chain*: the files of one home, or of homes that share files, in the order of reading.
- *sought*: an inode that is looked for where no pattern leads, as a known file has it.
"""
