"""Loading: file and environment become ``Settings``, or a list of everything that is wrong.

Knows: the sections, and what contradicts what between them.
Must not know: what the settings are used for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gateway.errors import Problem, SettingsError
from gateway.model import Board
from gateway.settings import boardchecks, purging
from gateway.settings import redis as redis_module
from gateway.settings import source as source_module
from gateway.settings.clashes import clashes
from gateway.settings.declared import Declared, Examine
from gateway.settings.leaderboards import LeaderboardSettings
from gateway.settings.partial import Section, certain
from gateway.settings.problems import form_of, validated
from gateway.settings.redis import RedisSettings
from gateway.settings.sections import (
    CdnSettings,
    LastKnownSettings,
    LogSettings,
    ServerSettings,
    SharedTierSettings,
)
from gateway.settings.showing import plain
from gateway.settings.source import BOARDS, Source
from gateway.settings.spelling import meant, suggestion

_MOST_OF_A_PATH = 200

SECTIONS: Mapping[str, type[Section]] = {
    "server": ServerSettings,
    "log": LogSettings,
    "redis": RedisSettings,
    "last_known": LastKnownSettings,
    "shared_tier": SharedTierSettings,
    "cdn": CdnSettings,
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything the file and the environment say, checked. Can be pickled, secrets included."""

    redis: RedisSettings
    leaderboards: tuple[LeaderboardSettings, ...]
    server: ServerSettings = field(default_factory=ServerSettings)
    log: LogSettings = field(default_factory=LogSettings)
    last_known: LastKnownSettings = field(default_factory=LastKnownSettings)
    shared_tier: SharedTierSettings | None = None
    cdn: CdnSettings = field(default_factory=CdnSettings)
    warnings: tuple[str, ...] = ()
    """What the operator should know and nothing stops at, to be logged once at start."""

    @cached_property
    def boards(self) -> tuple[Board, ...]:
        """The leaderboards, in the order of the file."""
        return tuple(leaderboard.board() for leaderboard in self.leaderboards)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "boards"}


def load(path: Path | str, environ: Mapping[str, str], *, examine: Examine | None = None) -> Settings:
    """Read and check the settings. Raise ``SettingsError`` with every problem there is.

    ``examine`` adds problems that only who knows more than the settings can see; what it says of a key goes before
    what is said here.
    """
    texts = {name: _text_keys(model) for name, model in SECTIONS.items()}
    source = source_module.read(Path(path), environ, texts)
    problems = [*source.problems, *_unknown(source)]
    sections: dict[str, Any] = {
        name: validated(model, source.tables.get(name, {}), name, problems, complete=name not in source.lost)
        for name, model in SECTIONS.items()
        if name != "shared_tier" or source.tables.get(name)
    }
    leaderboards = _leaderboards(source, problems)
    problems += _contradictions(sections, leaderboards, environ)
    if examine is not None:
        found = list(examine(_declared(source, sections, leaderboards)))
        better = {problem.path for problem in found}
        problems = [problem for problem in problems if problem.path not in better] + found
    if problems:
        raise SettingsError([_for_a_terminal(problem, source) for problem in problems])
    return Settings(leaderboards=tuple(leaderboards), warnings=_warnings(source), **sections)


def _text_keys(model: type[Section]) -> Iterator[str]:
    """Yield the keys whose value in the environment is taken as it stands, not as JSON."""
    for key, info in model.model_fields.items():
        form = form_of(info).text
        if not form.startswith(("a whole", "a number", "a list", "true")):
            yield key


def _unknown(source: Source) -> Iterator[Problem]:
    """Yield the tables that there are not; one that was meant for another may hold what that one lacks."""
    known = [*SECTIONS, BOARDS]
    for name in source.tables.keys() - set(known):
        source.lost |= {meant(name, known) or name} - source.tables.keys()
    for name in source.tables:
        if name not in known:
            yield Problem(name, suggestion(name, known))


def _leaderboards(source: Source, problems: list[Problem]) -> list[LeaderboardSettings]:
    tables = source.tables.get(BOARDS, [])
    if not isinstance(tables, list):
        problems.append(Problem(BOARDS, "must be a list of tables: begin each with [[leaderboards]]"))
        return []
    if not tables and BOARDS not in source.lost:
        problems.append(Problem(BOARDS, "is required: at least one [[leaderboards]] table with name and key"))
    return [validated(LeaderboardSettings, table, f"{BOARDS}[{i}]", problems) for i, table in enumerate(tables)]


def _declared(source: Source, sections: Mapping[str, Any], leaderboards: Sequence[LeaderboardSettings]) -> Declared:
    tables: Any = source.tables.get(BOARDS, [])
    written = [table if isinstance(table, Mapping) else {} for table in tables] if isinstance(tables, list) else []
    return Declared(list(zip(written, leaderboards, strict=True)), sections["cdn"])


def _contradictions(
    sections: Mapping[str, Any], leaderboards: Sequence[LeaderboardSettings], environ: Mapping[str, str]
) -> Iterator[Problem]:
    yield from redis_module.contradictions(sections["redis"])
    yield from certain(_last_known(sections["last_known"]), purging.contradictions(sections["cdn"], environ))
    for index, board in enumerate(leaderboards):
        for problem in boardchecks.contradictions(board, sections["redis"]):
            yield Problem(f"{BOARDS}[{index}].{problem.path}", problem.message)
    yield from clashes(leaderboards)


def _last_known(last_known: LastKnownSettings) -> Iterator[Problem]:
    if last_known.keep_s < last_known.interval_s:
        yield Problem("last_known.keep_s", f"must be at least interval_s ({last_known.interval_s:g})")


def _for_a_terminal(problem: Problem, source: Source) -> Problem:
    """Name the variable that set a value, since the file does not show it; escape what a terminal would obey."""
    message = plain(problem.message)
    for path, variable in source.origins.items():
        if problem.path == path or problem.path.startswith((f"{path}[", f"{path}.")):
            message += f" (from {plain(variable, _MOST_OF_A_PATH)})"
            break
    return Problem(plain(problem.path, _MOST_OF_A_PATH), message)


def _warnings(source: Source) -> tuple[str, ...]:
    if not source.ignored:
        return ()
    return (f"these variables name no section and key and are ignored: {plain(', '.join(source.ignored))}",)
