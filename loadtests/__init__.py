"""Load and comparison: what the gateway costs, how fast it is, and how to know that the measurement is sound.

Knows: the contract's HTTP interface, and the programs it is compared with.
Must not know: the tests, or the inside of the gateway (the baselines share its server settings and its scripts).
"""
