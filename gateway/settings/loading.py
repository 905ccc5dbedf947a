"""Loading: file and environment become ``Settings``, or a list of everything that is wrong.

Knows: the sections, and what contradicts what between them.
Must not know: what the settings are used for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from gateway.errors import Problem, SettingsError
from gateway.model import Board
from gateway.settings import leaderboards as boards_module
from gateway.settings import redis as redis_module
from gateway.settings import source as source_module
from gateway.settings.declared import Declared, Examine
from gateway.settings.leaderboards import LeaderboardSettings
from gateway.settings.problems import form_of, suggestion, validated
from gateway.settings.redis import RedisSettings, unreadable
from gateway.settings.sections import (
    CdnSettings,
    LastKnownSettings,
    LogSettings,
    Section,
    ServerSettings,
    SharedTierSettings,
)
from gateway.settings.source import BOARDS, Source
from gateway.settings.templates import Names

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
    if source.problems:
        raise SettingsError(source.problems)
    problems = list(_unknown(source))
    sections: dict[str, Any] = {
        name: validated(model, source.tables.get(name, {}), name, problems)
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
        raise SettingsError([_with_origin(problem, source) for problem in problems])
    present = tuple(board for board in leaderboards if board is not None)
    return Settings(leaderboards=present, warnings=_warnings(source), **sections)


def _text_keys(model: type[Section]) -> Iterator[str]:
    """Yield the keys whose value in the environment is taken as it stands, not as JSON."""
    for key, info in model.model_fields.items():
        form = form_of(info).text
        if not form.startswith(("a whole", "a number", "a list", "true")):
            yield key


def _unknown(source: Source) -> Iterator[Problem]:
    known = [*SECTIONS, BOARDS]
    for name in source.tables:
        if name not in known:
            yield Problem(name, suggestion(name, known))


def _leaderboards(source: Source, problems: list[Problem]) -> list[LeaderboardSettings | None]:
    tables = source.tables.get(BOARDS, [])
    if not isinstance(tables, list):
        problems.append(Problem(BOARDS, "must be a list of tables: begin each with [[leaderboards]]"))
        return []
    if not tables:
        problems.append(Problem(BOARDS, "is required: at least one [[leaderboards]] table with name and key"))
    return [validated(LeaderboardSettings, table, f"{BOARDS}[{i}]", problems) for i, table in enumerate(tables)]


def _declared(
    source: Source, sections: Mapping[str, Any], leaderboards: Sequence[LeaderboardSettings | None]
) -> Declared:
    tables: Any = source.tables.get(BOARDS, [])
    written = [table if isinstance(table, Mapping) else {} for table in tables] if isinstance(tables, list) else []
    return Declared(list(zip(written, leaderboards, strict=True)), sections["cdn"])


def _contradictions(
    sections: Mapping[str, Any], leaderboards: Sequence[LeaderboardSettings | None], environ: Mapping[str, str]
) -> Iterator[Problem]:
    redis: RedisSettings | None = sections["redis"]
    if redis is not None:
        yield from redis_module.contradictions(redis)
    if sections["last_known"] is not None:
        yield from _last_known(sections["last_known"])
    if sections["cdn"] is not None:
        yield from _purge(sections["cdn"], environ)
    budget_ms = redis.request_budget_ms if redis is not None else None
    present = {index: board for index, board in enumerate(leaderboards) if board is not None}
    for index, board in present.items():
        for problem in boards_module.contradictions(board, budget_ms):
            yield Problem(f"{BOARDS}[{index}].{problem.path}", problem.message)
    yield from _clashes(present)


def _last_known(last_known: LastKnownSettings) -> Iterator[Problem]:
    if last_known.keep_s < last_known.interval_s:
        yield Problem("last_known.keep_s", f"must be at least interval_s ({last_known.interval_s:g})")


_PURGE_NEEDS = {
    "varnish": ("url",),
    "fastly": ("service", "token_file"),
    "cloudflare": ("zone", "token_file"),
}
"""What each edge needs; ``token_variable`` does as well as ``token_file``."""


def _purge(cdn: CdnSettings, environ: Mapping[str, str]) -> Iterator[Problem]:
    for index, target in enumerate(cdn.purge):
        path = f"cdn.purge[{index}]"
        variable = target.token_variable
        for key in _PURGE_NEEDS[target.edge]:
            if getattr(target, key) is None and not (key == "token_file" and variable):
                yield Problem(f"{path}.{key}", f'is required for edge = "{target.edge}"')
        if variable is None:
            yield from unreadable(target, "token_file", "token", section=path)
        elif target.token_file is not None:
            yield Problem(f"{path}.token_variable", "stands beside token_file: give one of the two")
        elif not target.take_token(environ):
            yield Problem(f"{path}.token_variable", f"names {variable}, which the environment does not hold")


def _clashes(boards: Mapping[int, LeaderboardSettings]) -> Iterator[Problem]:
    """Yield the pairs of boards that a URL or a key could not tell apart."""
    keys: dict[tuple[str, str], int] = {}
    names: dict[str, int] = {}
    for index, board in boards.items():
        first = keys.setdefault((board.key, board.period), index)
        if first != index:
            yield Problem(f"{BOARDS}[{index}].key", f"is the key of {BOARDS}[{first}], for the same periods")
        first = names.setdefault(board.name, index)
        if first != index:
            yield Problem(f"{BOARDS}[{index}].name", f"is the name of {BOARDS}[{first}]")
    yield from _overlaps(boards)


def _overlaps(boards: Mapping[int, LeaderboardSettings]) -> Iterator[Problem]:
    sound = {index: board for index, board in boards.items() if board.name_is_sound}
    families = {index: Names(board.name, board.patterns()) for index, board in sound.items() if "<" in board.name}
    plain = [index for index in sound if index not in families]
    for one, other in combinations(families, 2):
        name = families[one].shared_with(families[other])
        if name is not None and sound[one].name != sound[other].name:  # equal ones were said already
            yield _overlap(one, other, name)
    for one, names in families.items():
        for other in plain:
            if names.pattern.fullmatch(sound[other].name):
                yield _overlap(one, other, sound[other].name)


def _overlap(one: int, other: int, name: str) -> Problem:
    later, earlier = max(one, other), min(one, other)
    return Problem(f"{BOARDS}[{later}].name", f"{name!r} in a URL would also be {BOARDS}[{earlier}]")


def _with_origin(problem: Problem, source: Source) -> Problem:
    """Name the variable that set a value, since the file does not show it."""
    for path, variable in source.origins.items():
        if problem.path == path or problem.path.startswith((f"{path}[", f"{path}.")):
            return Problem(problem.path, f"{problem.message} (from {variable})")
    return problem


def _warnings(source: Source) -> tuple[str, ...]:
    if not source.ignored:
        return ()
    return (f"these variables name no section and key and are ignored: {', '.join(source.ignored)}",)
