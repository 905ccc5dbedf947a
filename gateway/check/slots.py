"""Slots of a Redis Cluster: which nobody holds, and which keys could end up in which.

Knows: CLUSTER SLOTS, hash tags, templates of keys.
Must not know: reads, who prints what is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redis.crc import key_slot
from redis.exceptions import RedisError

from gateway.model import Board
from gateway.replicas.build import account_of, address_of
from gateway.replicas.discovery import Clients
from gateway.replicas.slots import SLOTS, ClusterView, best_of, view_of
from gateway.settings import RedisSettings


async def cluster_view(redis: RedisSettings) -> ClusterView | None:
    """Ask every configured node which slots are held."""
    clients = Clients(account_of(redis, redis.username, redis.password))
    views = []
    for text in redis.cluster:
        address = address_of(f"//{text}")
        questions = clients.at(address).pipeline(transaction=False)
        questions.execute_command("CLUSTER INFO")
        questions.execute_command("CLUSTER SLOTS")
        try:
            info, slots = await questions.execute()
            views.append(view_of(info, slots, address))
        except (RedisError, OSError, TimeoutError, ValueError):
            continue  # that the node is away, or none of a cluster, is said of the node
    await clients.close()
    return best_of(views)


def cluster_problems(view: ClusterView | None, boards: Sequence[Board]) -> Iterator[str]:
    """Yield the slots that nobody holds, and the templates with which a client could choose the slot."""
    if view is None:
        yield "no configured node knows of any slot"
        return
    missing = sorted(view.unheld())
    if missing:
        yield f"nobody holds {len(missing)} of {SLOTS} slots: {_ranges(missing)}"
        yield from (
            f"{board.name}: its slot {key_slot(board.key.encode())} is among them"
            for board in boards
            if "<" not in board.key and key_slot(board.key.encode()) in set(missing)
        )
    if not view.whole:
        yield "the cluster says that it is not whole (CLUSTER INFO: cluster_state)"
    for board in boards:
        for word, pattern in board.placeholders.items():
            if any(pattern.fullmatch(text) for text in ("{", "}", "{a}", "a{b}")):
                yield f"{board.name}: <{word}> may hold braces, so a client could choose in which slot a key lies"
        if set("{}") & set(board.key) and not tag_of(board.key):
            yield f"{board.name}: the braces in its key are no hash tag, so its keys could cross slots"


def slot_notes(boards: Sequence[Board]) -> Iterator[str]:
    """Yield the boards whose profiles lie in another slot, which is no fault: they are read in a trip of their own."""
    for board in boards:
        if board.profiles is not None and (tag_of(board.profiles) or board.profiles) != (
            tag_of(board.key) or board.key
        ):
            yield f"note: {board.name}: board and profiles may lie in different slots, and are read in two trips"


def tag_of(key: str) -> str:
    """Return the hash tag of a key or template: what stands between the first { and the next }; empty if nothing."""
    return key.partition("{")[2].partition("}")[0] if "}" in key.partition("{")[2] else ""


def _ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers as ranges: ``0-99, 16383``; of more than ten ranges the first ten."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return ", ".join(texts[:10]) + (", …" if len(texts) > 10 else "")
