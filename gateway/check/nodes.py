"""Nodes: what is wrong with them, or with how they are configured, in an operator's words.

Knows: the reports of nodes, the three shapes, names to resolve.
Must not know: boards, how a node is judged, who prints what is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from gateway.replicas.build import address_of
from gateway.replicas.discovery import resolve
from gateway.replicas.report import NodeReport
from gateway.settings import RedisSettings


async def unresolved(redis: RedisSettings) -> Sequence[str]:
    """Return a problem for each configured name that stands for no address now."""
    urls = [url for url in (redis.primary, *redis.replicas) if url]
    bare = [*((text, 26379) for text in redis.sentinels), *((text, 6379) for text in redis.cluster)]
    names = [*map(address_of, urls), *(address_of(f"//{text}", default_port=port) for text, port in bare)]
    found = await asyncio.gather(*map(resolve, names))
    return [f"the name {name} cannot be resolved" for name, at in zip(names, found, strict=True) if not at]


def node_problems(nodes: Sequence[NodeReport], redis: RedisSettings) -> Iterator[str]:
    """Yield what is wrong with the nodes that were found, or that none was."""
    if not nodes:
        yield _none_found(redis)
    for node in nodes:
        if node.state != "up":
            why = f" ({node.trouble})" if node.trouble else ""
            yield f"{node.role} {node.address} is {node.state.replace('_', ' ')}{why}"
    for shard in sorted({node.shard for node in nodes}):
        if not any(node.shard == shard and node.role == "primary" for node in nodes):
            yield f"shard {shard} has no primary"


def replica_problems(nodes: Sequence[NodeReport], redis: RedisSettings) -> Iterator[str]:
    """Yield that the replicas are none, where each name of one stands for the primary."""
    if redis.replicas and nodes and not any(node.role == "replica" for node in nodes):
        yield (
            "redis.replicas stands for the primary alone: its reads are limited (primary_max_reads_per_s) as long as "
            "replicas are named"
        )


def _none_found(redis: RedisSettings) -> str:
    if redis.shape == "sentinel":
        return f"no Sentinel says where {redis.service} is: none answers, none knows that name, or none lets us ask"
    return "no node of Redis was found"
