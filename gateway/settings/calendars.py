"""Calendars: what is wrong with a board's periods, each key and each season judged apart as far as can be.

Knows: that ``calendar_for`` refuses one setting at a time, and which settings it judges on their own.
Must not know: why one is refused, other boards, TOML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, TypeAlias

from gateway.errors import Problem
from gateway.periods import CalendarError, Season, calendar_for
from gateway.settings.leaderboards import LeaderboardSettings, SeasonSettings
from gateway.settings.partial import certain

_Parts: TypeAlias = dict[str, Any]

_IN_PLACE: Mapping[str, Any] = {"label": "s", "start": date(1, 1, 3), "end": date(9999, 12, 29)}
"""What stands for a part of a season that is refused, so that the other parts are judged: nothing ends before it."""

_SEASON = re.compile(r"seasons\[(\d+)\]\.(.+)")


def faults(board: LeaderboardSettings) -> Iterator[Problem]:
    """Yield what is wrong with the periods; paths are relative to the board."""
    alone = (_alone(board, key) for key in ("timezone", "starts_at", "period_format"))
    found = certain(*alone, _kind(board), _dated(board), _seasons(board))
    yield from dict.fromkeys(found)  # a format that is refused alone is refused with its period too


def _alone(board: LeaderboardSettings, key: str) -> Iterator[Problem]:
    yield from _refused("none", **{key: getattr(board, key)})


def _kind(board: LeaderboardSettings) -> Iterator[Problem]:
    yield from _refused(board.period, seasons=[Season(**_IN_PLACE)] if board.gives("seasons") else [])


def _dated(board: LeaderboardSettings) -> Iterator[Problem]:
    if board.period not in ("none", "seasons"):
        yield from _refused(board.period, week_starts=board.week_starts, period_format=board.period_format)


def _refused(period: str, **settings: Any) -> Iterator[Problem]:
    try:
        calendar_for(period, **settings)
    except CalendarError as error:
        yield Problem(error.key, error.message)


def _seasons(board: LeaderboardSettings) -> Iterator[Problem]:
    seasons, rules = board.seasons, {"timezone": board.timezone, "starts_at": board.starts_at}
    if any(_refused("none", **rules)):
        return  # dates mean nothing without them
    together: dict[int, Season] = {}
    for index, season in enumerate(seasons):
        found = list(_in_season(season, rules))
        yield from (Problem(f"seasons[{index}].{key}", message) for key, message in found)
        if not found and not season.doubtful:
            together[index] = Season(season.label, season.start, season.end)
    yield from _among(together, rules)
    yield from certain(_same_keys(board, list(together.values()), rules))


def _in_season(season: SeasonSettings, rules: Mapping[str, Any]) -> Iterator[Problem]:
    parts: _Parts = {**_IN_PLACE, **{key: getattr(season, key) for key in _IN_PLACE.keys() - season.doubtful}}
    while (refused := next(_refused("seasons", seasons=[Season(**parts)], **rules), None)) is not None:
        match = _SEASON.fullmatch(refused.path)
        if match is None or parts[match[2]] == _IN_PLACE[match[2]]:
            return
        yield Problem(match[2], refused.message)
        parts[match[2]] = _IN_PLACE[match[2]]


def _among(seasons: dict[int, Season], rules: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong between seasons that are each right; one that was refused is left out from there on."""
    while (refused := next(_refused("seasons", seasons=list(seasons.values()), **rules), None)) is not None:
        match = _SEASON.fullmatch(refused.path)
        if match is None:
            return  # none is left
        index = list(seasons)[int(match[1])]
        yield Problem(f"seasons[{index}].{match[2]}", refused.message)
        del seasons[index]


def _same_keys(board: LeaderboardSettings, seasons: Sequence[Season], rules: Mapping[str, Any]) -> Iterator[Problem]:
    if seasons:
        yield from _refused("seasons", seasons=seasons, period_format=board.period_format, **rules)
