"""Private clustering: each algorithm holds a `PrivateTable` and post-processes its answers."""
