"""Loading a board: rows go into a temporary key beside it, then one script swaps that key in.

Knows: redis-py's blocking client, hash slots, the two scripts.
Must not know: files, settings, command lines, HTTP.

Nobody sees a half-loaded board: until the swap the board is as it was, after it all rows are there. The temporary
key expires by itself, so that not even a kill -9 in the middle leaves anything for ever.
"""

from __future__ import annotations

import secrets
from binascii import crc_hqx
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count, islice
from typing import Any, NamedTuple, Protocol

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import RedisClusterException, RedisError, ResponseError

from gateway.errors import GatewayError

BATCH_ROWS = 500
"""Rows a script call: Lua's unpack takes 8,000 values at most, and a call should block Redis for 1 ms, not 10."""

TEMPORARY_S = 600
"""How long the temporary key lives after the last batch written to it."""

# Writes and renews the expiry in one step: between two commands a kill could leave a key without one.
_WRITE = """
local added = redis.call('ZADD', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return added
"""

# The board keeps its own expiry (a period's key has one). UNLINK first: RENAME would free ten million old rows
# while everybody waits.
_SWAP = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'zset' then return {'wrong_type', kind} end
local loaded = redis.call('ZCARD', KEYS[2])
if loaded == 0 or loaded ~= tonumber(ARGV[1]) then return {'lost', loaded} end
local before = redis.call('ZCARD', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if left >= 0 then redis.call('PEXPIRE', KEYS[2], math.max(left, 1)) else redis.call('PERSIST', KEYS[2]) end
redis.call('UNLINK', KEYS[1])
redis.call('RENAME', KEYS[2], KEYS[1])
return {'swapped', before, left}
"""


class LoadFailed(GatewayError):
    """The board was not loaded; ``detail`` is a sentence for the operator."""

    code = "load_failed"
    title = "Load failed"


class Client(Protocol):
    """What is needed of redis-py's ``Redis`` and ``RedisCluster``."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command, return its reply."""
        ...


class Loaded(NamedTuple):
    """How a load went: rows now on the board, rows before, and the expiry kept, in seconds (None: none)."""

    rows: int
    before: int
    expires_s: float | None


def load_board(
    client: Client,
    key: bytes,
    rows: Iterable[tuple[bytes, float]],
    *,
    written: Callable[[int], object] = lambda _: None,
) -> Loaded:
    """Replace the sorted set at ``key`` by ``rows`` (distinct members), all at once.

    ``written`` is told the size of each batch once Redis has it. Whatever goes wrong before the swap, the board
    is untouched and the temporary key is removed, on KeyboardInterrupt too. Raise ``LoadFailed``.
    """
    temporary = temporary_key(key)
    try:
        total = _write(client, temporary, rows, written)
    except BaseException as error:
        _discard(client, temporary)
        if isinstance(error, RedisError | RedisClusterException):
            raise LoadFailed(f"Redis did not take the rows, the board is unchanged: {error}") from error
        raise
    if total == 0:
        raise LoadFailed("There is no row to load; the board is unchanged.")
    return _swap(client, key, temporary, total)


def temporary_key(key: bytes) -> bytes:
    """Return a new key beside ``key`` that begins with it (so that an ACL's pattern fits) and shares its slot.

    A key with a hash tag keeps it. Any other is hashed whole, so the ending is counted up until the slot is the
    same: 16,384 steps on average, some 10 ms.
    """
    stem, slot = key + b":loading:" + secrets.token_hex(6).encode(), key_slot(key)
    if key_slot(stem) == slot:
        return stem
    checksum = crc_hqx(stem, 0)
    return next(
        stem + ending
        for ending in (b"%d" % number for number in count())
        if crc_hqx(ending, checksum) % REDIS_CLUSTER_HASH_SLOTS == slot
    )


def _write(
    client: Client, temporary: bytes, rows: Iterable[tuple[bytes, float]], written: Callable[[int], object]
) -> int:
    total = 0
    for batch in _batches(rows):
        values = [value for member, score in batch for value in (repr(score), member)]
        client.execute_command("EVAL", _WRITE, 1, temporary, TEMPORARY_S * 1000, *values)
        total += len(batch)
        written(len(batch))
    return total


def _batches(rows: Iterable[tuple[bytes, float]]) -> Iterator[list[tuple[bytes, float]]]:
    left = iter(rows)
    while batch := list(islice(left, BATCH_ROWS)):
        yield batch


def _swap(client: Client, key: bytes, temporary: bytes, total: int) -> Loaded:
    try:
        said, number, *more = client.execute_command("EVAL", _SWAP, 2, key, temporary, total)
    except ResponseError as error:
        _discard(client, temporary)
        raise LoadFailed(f"Redis refused to swap the loaded board in, the old one is unchanged: {error}") from error
    except BaseException as error:
        # The script may have run though its reply was lost, so nothing can be said for sure.
        _discard(client, temporary)
        raise LoadFailed(
            "The connection ended while the loaded board was being swapped in: it is there whole or not at all. "
            "Load again to be sure."
        ) from error
    if said == b"swapped":
        return Loaded(total, number, more[0] / 1000 if more[0] >= 0 else None)
    _discard(client, temporary)
    if said == b"wrong_type":
        raise LoadFailed(f"The board's key holds a {number.decode()}, not a sorted set; it was left alone.")
    raise LoadFailed(
        f"Of {total} rows written, Redis had {number} left before the swap (out of memory, or a failover?); "
        "the board is unchanged."
    )


def _discard(client: Client, temporary: bytes) -> None:
    with suppress(RedisError, RedisClusterException, OSError):  # it expires by itself
        client.execute_command("UNLINK", temporary)
