"""Server: one parent process that listens and watches, and the worker processes that answer.

Knows: processes, sockets, signals, how a gateway starts and stops.
Must not know: what the gateway answers.
"""
