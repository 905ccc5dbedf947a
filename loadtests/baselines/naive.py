"""Naive: what one writes first. A Starlette handler awaits redis-py for every command and encodes JSON per request.

Knows: Starlette, redis-py.
Must not know: snapshots, coalescing, pipelines.
"""

from __future__ import annotations

import argparse
from typing import Any

import redis.asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from loadtests.baselines.serve import serve

BASE = "/v1/leaderboards/{leaderboard}"


class Handlers:
    """Three routes over one client; ``lb:<leaderboard>`` is the key."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self.client = client

    async def top(self, request: Request) -> JSONResponse:
        """Answer the first 100 entries."""
        return JSONResponse(await self.read_top(request.path_params["leaderboard"]))

    async def read_top(self, board: str) -> dict[str, Any]:
        """Read the top and the board's size: two awaited commands."""
        key = f"lb:{board}"
        rows = await self.client.zrevrange(key, 0, 99, withscores=True)
        return {"leaderboard": board, "total": await self.client.zcard(key), "entries": entries(rows, 0)}

    async def rank(self, request: Request) -> JSONResponse:
        """Answer a member's rank, score and the board's size: three awaited commands."""
        board, member = request.path_params["leaderboard"], request.path_params["member"]
        key = f"lb:{board}"
        index: Any = await self.client.zrevrank(key, member)
        if index is None:
            return JSONResponse({"code": "member_not_found"}, status_code=404)
        score = await self.client.zscore(key, member)
        total = await self.client.zcard(key)
        body = {"leaderboard": board, "total": total, "member": member, "rank": index + 1, "score": score}
        return JSONResponse(body)

    async def neighbors(self, request: Request) -> JSONResponse:
        """Answer the member and five on each side: two awaited commands, which may see different boards."""
        board, member = request.path_params["leaderboard"], request.path_params["member"]
        key = f"lb:{board}"
        index: Any = await self.client.zrevrank(key, member)
        if index is None:
            return JSONResponse({"code": "member_not_found"}, status_code=404)
        first = max(0, index - 5)
        rows = await self.client.zrevrange(key, first, index + 5, withscores=True)
        return JSONResponse({"leaderboard": board, "entries": entries(rows, first)})


def entries(rows: Any, first: int) -> list[dict[str, Any]]:
    """Return rows as JSON data; ``first`` is the index of the first."""
    return [{"rank": first + place, "member": member, "score": score} for place, (member, score) in enumerate(rows, 1)]


def app(handlers: Handlers) -> Starlette:
    """Return the application."""
    return Starlette(
        routes=[
            Route(f"{BASE}/top", handlers.top),
            Route(f"{BASE}/members/{{member}}", handlers.rank),
            Route(f"{BASE}/members/{{member}}/neighbors", handlers.neighbors),
        ]
    )


def run(make: type[Handlers], description: str) -> None:
    """Serve such handlers on ``--port`` over the Redis at ``--redis``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    serve(app(make(redis.asyncio.Redis.from_url(options.redis, decode_responses=True))), options.port)


if __name__ == "__main__":
    run(Handlers, "the naive handler")
