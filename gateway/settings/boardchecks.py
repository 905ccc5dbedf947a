"""Board checks: what is wrong in one board between keys that are each right.

Knows: which keys of a board contradict each other, and the budget of ``[redis]`` that its grace is held to.
Must not know: other boards, where the settings came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway.errors import Problem
from gateway.placeholders import compiled
from gateway.settings import calendars
from gateway.settings.leaderboards import LIVES, LeaderboardSettings
from gateway.settings.partial import certain
from gateway.settings.redis import RedisSettings
from gateway.settings.templates import fault_of, fault_of_name, placeholders_in

_OF_PERIODS = ("timezone", "starts_at", "week_starts", "period_format", "settle_s")
_KEPT = (*LIVES, "stale_while_revalidate_s", "stale_if_error_s")


def contradictions(board: LeaderboardSettings, redis: RedisSettings) -> Iterator[Problem]:
    """Yield what is wrong in one board; paths are relative to it."""
    templates = ("key", "profiles")
    yield from certain(
        _name(board),
        *(_spelling(board, key) for key in templates),
        *(_strange_words(board, key) for key in templates),
        *(_strange_period(board, key) for key in templates),
        _missing_words(board),
        _missing_period(board),
        _strange_placeholders(board),
        _patterns(board),
        calendars.faults(board),
        *(_of_periods(board, key) for key in _OF_PERIODS),
        _week_starts(board),
        _primary(board),
        _grace(board, redis),
    )


def _name(board: LeaderboardSettings) -> Iterator[Problem]:
    fault = fault_of_name(board.name)
    if fault is not None:
        yield Problem("name", fault)


def _spelling(board: LeaderboardSettings, key: str) -> Iterator[Problem]:
    template: str | None = getattr(board, key)
    fault = None if template is None else fault_of(template)
    if fault is not None:
        yield Problem(key, fault)


def _words(template: str | None) -> set[str]:
    """Return the placeholders of a template; none of one that is not written as it should be."""
    return set(placeholders_in(template)) if template and fault_of(template) is None else set()


def _strange_words(board: LeaderboardSettings, key: str) -> Iterator[Problem]:
    for word in sorted(_words(getattr(board, key)) - set(placeholders_in(board.name)) - {"period"}):
        yield Problem(key, f"holds <{word}>, which the name {board.name!r} does not")


def _strange_period(board: LeaderboardSettings, key: str) -> Iterator[Problem]:
    if "period" in _words(getattr(board, key)) and not board.periodic:
        yield Problem(key, "holds <period>, and the board has none: set period, or seasons, or remove it")


def _missing_words(board: LeaderboardSettings) -> Iterator[Problem]:
    for word in sorted(set(placeholders_in(board.name)) - set(placeholders_in(board.key)) - {"period"}):
        yield Problem("key", f"must hold <{word}> as the name does: else many names would show one board")


def _missing_period(board: LeaderboardSettings) -> Iterator[Problem]:
    if "period" not in placeholders_in(board.key) and board.periodic:
        yield Problem("key", "must hold <period>: else every period would be the same board")


def _strange_placeholders(board: LeaderboardSettings) -> Iterator[Problem]:
    for word in sorted(set(board.sound("placeholders")) - set(placeholders_in(board.name))):
        yield Problem(f"placeholders.{word}", f"the name {board.name!r} holds no <{word}>")


def _patterns(board: LeaderboardSettings) -> Iterator[Problem]:
    for word, pattern in dict(board.sound("placeholders")).items():
        try:
            expression = compiled(pattern)
        except re.error as error:
            yield Problem(f"placeholders.{word}", f"must be a regular expression: {error}")
            continue
        if expression.groups:
            yield Problem(f"placeholders.{word}", "must hold no capturing group: write (?:…) for (…)")
        if expression.fullmatch(""):
            yield Problem(f"placeholders.{word}", "must not match the empty text")


def _of_periods(board: LeaderboardSettings, key: str) -> Iterator[Problem]:
    if board.wrote(key) and not board.periodic:
        yield Problem(key, "says how periods run, and the board has none: set period, or seasons, or remove it")


def _week_starts(board: LeaderboardSettings) -> Iterator[Problem]:
    if board.wrote("week_starts") and board.period != "weekly" and board.periodic:
        yield Problem("week_starts", 'belongs to period = "weekly"')


def _primary(board: LeaderboardSettings) -> Iterator[Problem]:
    if board.read_from != "primary" or board.caches_top:
        return
    given = [key for key in sorted(_KEPT) if key in board.model_fields_set - board.doubtful and getattr(board, key)]
    if given:
        missing = ", ".join(key for key in LIVES if not board.wrote(key))
        yield Problem(
            "read_from",
            f'"primary" means that nothing is kept, and {", ".join(given)} says otherwise: '
            f"set {missing} too if the top shall be cached, or remove what is set",
        )


def _grace(board: LeaderboardSettings, redis: RedisSettings) -> Iterator[Problem]:
    if board.grace_ms < redis.request_budget_ms and board.ttl_ms > 0 and board.caches_top:
        yield Problem(
            "grace_ms",
            f"must be at least redis.request_budget_ms ({redis.request_budget_ms}) unless ttl_ms is 0: "
            "a refresh that takes its whole budget would leave readers waiting",
        )
