"""Check: what an operator asks before the gateway is started.

Knows: where the command and its parts are.
Must not know: how anything is checked.
"""
