"""Constant: the cheapest ASGI application there can be, sending one prepared answer.

Knows: ASGI, and the answers it was given in a file.
Must not know: paths, leaderboards, Redis.

The answers are what the running gateway sent (status, header lines, body), so that both put the same bytes on the
wire; what the gateway costs beyond this is its own doing. Given several answers, as the calibration of a generator
needs, one is chosen by the end of the path.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtests.answers import Prepared, load
from loadtests.baselines.serve import serve


def constant(answer: Prepared) -> Any:
    """Return the application that sends this answer to everything."""
    start = {"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)}
    body = {"type": "http.response.body", "body": answer.body}

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(start)
        await send(body)

    return app


def by_suffix(answers: Mapping[str, Prepared]) -> Any:
    """Return the application that chooses among the answers by the end of the path."""
    apps = {suffix: constant(answer) for suffix, answer in answers.items()}
    fallback = apps.pop("", next(iter(apps.values())))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        for suffix, chosen in apps.items():
            if path.endswith(suffix):
                await chosen(scope, receive, send)
                return
        await fallback(scope, receive, send)

    return app


def main() -> None:
    """Serve the answers of a file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    answers = load(options.answers)
    serve(constant(next(iter(answers.values()))) if len(answers) == 1 else by_suffix(answers), options.port)


if __name__ == "__main__":
    main()
