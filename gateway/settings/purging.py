"""Purging checks: what each edge in ``[[cdn.purge]]`` needs so that it can be purged.

Knows: which keys belong to which edge, and that a token has one source.
Must not know: how an edge is purged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.errors import Problem
from gateway.settings.partial import certain
from gateway.settings.redis import unreadable
from gateway.settings.sections import CdnSettings, PurgeTarget

_NEEDS = {
    "varnish": ("url",),
    "fastly": ("service", "token_file"),
    "cloudflare": ("zone", "token_file"),
}
"""What each edge needs; ``token_variable`` does as well as ``token_file``."""


def contradictions(cdn: CdnSettings, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what an edge lacks, and the tokens that cannot be had."""
    for index, target in enumerate(cdn.purge):
        path = f"cdn.purge[{index}]"
        needs = (_need(target, key, path) for key in ("url", "service", "zone", "token_file"))
        yield from certain(*needs, _token(target, environ, path))


def _need(target: PurgeTarget, key: str, path: str) -> Iterator[Problem]:
    if key not in _NEEDS[target.edge] or target.gives(key):
        return
    if key != "token_file" or not target.gives("token_variable"):
        yield Problem(f"{path}.{key}", f'is required for edge = "{target.edge}"')


def _token(target: PurgeTarget, environ: Mapping[str, str], path: str) -> Iterator[Problem]:
    if not target.gives("token_variable"):
        yield from unreadable(target, "token_file", "token", section=path)
    elif target.gives("token_file"):
        yield Problem(f"{path}.token_variable", "stands beside token_file: give one of the two")
    elif not target.take_token(environ):
        yield Problem(f"{path}.token_variable", f"names {target.token_variable}, which the environment does not hold")
