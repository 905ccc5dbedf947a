"""What the gateway is compared with: the bare server, the obvious handler, and that handler with a cache decorator.

Knows: the server settings the gateway runs under.
Must not know: how the gateway works.
"""
