"""Last known boards outside this process: where they are kept, and the task that keeps them there.

Knows: snapshots as bytes, and the instant each was read.
Must not know: HTTP, Redis, freshness, which boards are configured.

``opening.open_store`` picks a store by its URL; ``keeper.Keeper`` saves and restores.
"""
