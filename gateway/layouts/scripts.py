"""Scripts: how ranks and windows are read from one sorted set, in one instant.

Knows: Lua in Redis, ranks of both orders and tie rules.
Must not know: boards, nodes, what the numbers are for.

All take ``KEYS[1]`` only. A command is called with ``pcall``, and its error returned as it is, so that the error's code
is the same on every version. Indexes are 0-based here and in replies; scores are strings, as Redis prints them.

========= ============== ==========================================================================================
script    arguments      reply
========= ============== ==========================================================================================
member    member         ``{total, index, score}``, or ``{total}`` if it is absent
members   member …       ``{total, index, score, index, score …}``, −1 and an empty string where one is absent
window    first, last    ``{total, index of the first row's rank, {member, score, member, score …}}``
neighbors member, above, ``{total, index of the first row's rank, rows, first row's place}``, or ``{total}`` if the
          below          member is absent
========= ============== ==========================================================================================

With the ``competition`` rule a rank is how many scores are better. ``ZCARD`` comes first: it is what finds a key of
the wrong type; later commands can still be refused to an account that may not run them.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.model import Order, Ties
from gateway.replicas.commands import Script

_HEAD = """\
local k = KEYS[1]
local total = redis.pcall('ZCARD', k)
if type(total) ~= 'number' then return total end
"""

_MEMBER = """\
local at = redis.pcall('{rank}', k, ARGV[1])
if type(at) ~= 'number' then return at or {{total}} end
local score = redis.pcall('ZSCORE', k, ARGV[1])
if type(score) == 'table' then return score end
local index = {index}
if type(index) == 'table' then return index end
return {{total, index, score}}
"""

_MEMBERS = """\
local reply = {{total}}
for i = 1, #ARGV do
  local at = redis.pcall('{rank}', k, ARGV[i])
  if type(at) == 'table' then return at end
  if at then
    local score = redis.pcall('ZSCORE', k, ARGV[i])
    if type(score) == 'table' then return score end
    local index = {index}
    if type(index) == 'table' then return index end
    reply[2 * i] = index
    reply[2 * i + 1] = score
  else
    reply[2 * i] = -1
    reply[2 * i + 1] = ''
  end
end
return reply
"""

_WINDOW = """\
local at = tonumber(ARGV[1])
local rows = redis.pcall('{range}', k, ARGV[1], ARGV[2], 'WITHSCORES')
if rows.err then return rows end
local score = rows[2]
local index = {first_index}
if type(index) == 'table' then return index end
return {{total, index, rows}}
"""

_NEIGHBORS = """\
local here = redis.pcall('{rank}', k, ARGV[1])
if type(here) ~= 'number' then return here or {{total}} end
local at = here - ARGV[2]
if at < 0 then at = 0 end
local rows = redis.pcall('{range}', k, at, here + ARGV[3], 'WITHSCORES')
if rows.err then return rows end
local score = rows[2]
local index = {first_index}
if type(index) == 'table' then return index end
return {{total, index, rows, at}}
"""

_BETTER: dict[Order, str] = {
    "desc": "redis.pcall('ZCOUNT', k, '(' .. score, '+inf')",
    "asc": "redis.pcall('ZCOUNT', k, '-inf', '(' .. score)",
}


class Scripts(NamedTuple):
    """The four scripts of one order and tie rule."""

    member: Script
    members: Script
    window: Script
    neighbors: Script


def _scripts(order: Order, ties: Ties) -> Scripts:
    better = _BETTER[order] if ties == "competition" else "at"
    words = {
        "rank": "ZREVRANK" if order == "desc" else "ZRANK",
        "range": "ZREVRANGE" if order == "desc" else "ZRANGE",
        "index": better,
        "first_index": f"score and {better} or at" if ties == "competition" else "at",
    }
    return Scripts(*(Script(_HEAD + body.format(**words)) for body in (_MEMBER, _MEMBERS, _WINDOW, _NEIGHBORS)))


_ORDERS: tuple[Order, ...] = ("desc", "asc")
_TIES: tuple[Ties, ...] = ("ordinal", "competition")

SCRIPTS: dict[tuple[Order, Ties], Scripts] = {
    (order, ties): _scripts(order, ties) for order in _ORDERS for ties in _TIES
}


def scripts_of(*kinds: tuple[Order, Ties]) -> tuple[Script, ...]:
    """Return the scripts that boards of these orders and tie rules need, each once: to be loaded with a connection."""
    return tuple(script for kind in dict.fromkeys(kinds) for script in SCRIPTS[kind])
