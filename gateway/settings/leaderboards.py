"""Leaderboard settings: one ``[[leaderboards]]`` table, and the board it describes.

Knows: the keys of a board, their defaults, and what they come to.
Must not know: other boards, which keys contradict each other, Redis, HTTP.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gateway.model import Board
from gateway.periods import Calendar, CalendarError, Season, calendar_for
from gateway.placeholders import compiled
from gateway.settings.forms import EdgeS, Form, LifeMs, LongS, Text
from gateway.settings.partial import Section
from gateway.settings.templates import DEFAULT_PLACEHOLDER, fault_of_name, placeholders_in

_INSTANT = Form('a date or time such as 2026-03-01, 2026-03-01T09:00:00 or "2026-03-01T09:00:00+01:00"')
Instant: TypeAlias = Annotated[date | datetime | str, _INSTANT]

LIVES = ("ttl_ms", "grace_ms", "edge_ttl_s", "client_ttl_s")
"""What must be set on purpose, all of it, before a board read from the primary is cached anywhere."""


class SeasonSettings(Section):
    """One ``[[leaderboards.seasons]]`` table: a period with dates of its own."""

    label: Text = Field(description="What ?period= and <period> in the key call it.")
    start: Instant = Field(description="Its first instant; in the board's time zone unless it has an offset.")
    end: Instant = Field(description="The first instant that is no longer in it.")


class LeaderboardSettings(Section):
    """One leaderboard, or a family of them."""

    name: Text = Field(description='The name in URLs; "clan-<id>" is a family, several <placeholders> may stand in it.')
    key: Text = Field(
        description="The sorted set; <id> and <period> are filled in, { } stay the hash tags of Redis Cluster."
    )
    placeholders: Annotated[dict[str, str], Form("a table of regular expressions")] = Field(
        default_factory=dict,
        description=f'What each placeholder may be, "{DEFAULT_PLACEHOLDER}" unless given; else 404 and no Redis call. '
        "Clients choose what it is tried on: a repetition of a repetition, as in (?:a+)+, can take for ever.",
    )
    order: Literal["desc", "asc"] = Field(default="desc", description="Highest score first, or lowest (lap times).")
    ties: Literal["ordinal", "competition"] = Field(
        default="ordinal", description="Equal scores get ranks 1, 2, 3, 4, or 1, 2, 2, 4."
    )
    profiles: Text | None = Field(
        default=None, description="A hash, member → text or JSON up to 1 KiB, that is shown with each row."
    )
    ttl_ms: LifeMs = Field(
        default=1000,
        description="How long a snapshot is fresh; 0 shares reads and stores nothing, "
        "nor may others unless edge_ttl_s or client_ttl_s is set.",
    )
    grace_ms: LifeMs = Field(
        default=1000, description="How long after that it is still served while one refresh runs behind it."
    )
    edge_ttl_s: EdgeS = Field(default=5, description="How long an edge may hold the answer.")
    client_ttl_s: EdgeS = Field(default=2, description="How long a client may hold it.")
    stale_while_revalidate_s: EdgeS = Field(
        default=5, description="How long after that both may serve it while they fetch a new one."
    )
    stale_if_error_s: EdgeS = Field(
        default=3600, description="How long both may serve it when the gateway does not answer."
    )
    period: Literal["none", "daily", "weekly", "monthly", "seasons"] = Field(
        default="none", description="How often the board begins anew; <period> must then stand in the key."
    )
    timezone: Text = Field(default="UTC", description="Whose days, weeks and months they are.")
    starts_at: Text = Field(default="00:00", description="The local time at which a period begins.")
    week_starts: Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"] = Field(
        default="monday", description="The day on which a week begins."
    )
    period_format: Text | None = Field(
        default=None,
        description='The period in the key, as strftime on its start date ("%Y%m%d"); its label if not given.',
    )
    seasons: Annotated[tuple[SeasonSettings, ...], Field(strict=False)] = Field(
        default=(), description="Periods with a label and dates of their own, instead of a regular period."
    )
    settle_s: LongS = Field(
        default=600.0, description="How long after its end a period counts as final and is archived."
    )
    finished: Literal["purgeable", "immutable"] = Field(
        default="purgeable", description="How edges hold a finished period: a day, purgeable, or a year and for good."
    )
    read_from: Literal["replicas", "primary"] = Field(
        default="replicas",
        description="The primary for ranks that must be exact; nothing is cached then unless "
        "ttl_ms, grace_ms, edge_ttl_s and client_ttl_s are all set.",
    )

    @property
    def periodic(self) -> bool:
        """Whether the board has periods."""
        return self.gives("seasons") or self.period != "none"

    @property
    def caches_top(self) -> bool:
        """Whether anyone may keep the top.

        Read from the primary: if every life is set on purpose. With ``ttl_ms`` 0, "store nothing": if an edge's or a
        client's life is, since who wants nothing stored here is not asking for it elsewhere.
        """
        if self.read_from == "primary":
            return all(self.wrote(key) for key in LIVES)
        if not self.model_fields_set.isdisjoint(("edge_ttl_s", "client_ttl_s")):
            return True
        return self.ttl_ms > 0 or self.wrote("edge_ttl_s") or self.wrote("client_ttl_s")

    @property
    def name_is_sound(self) -> bool:
        """Whether the name and what its placeholders may be can be used at all."""
        try:
            self.patterns()
        except re.error:
            return False
        return fault_of_name(self.name) is None

    def life(self, key: str) -> int:
        """Return a life as set; where nothing is kept by default, 0 for each that nobody set on purpose."""
        value: int = getattr(self, key)
        kept = (key in self.model_fields_set and self.caches_top) or (self.read_from == "replicas" and self.ttl_ms > 0)
        return value if kept else 0

    def patterns(self) -> dict[str, re.Pattern[str]]:
        """Compile what each placeholder of the name may be; raises re.error."""
        words = placeholders_in(self.name)
        return {word: compiled(self.placeholders.get(word, DEFAULT_PLACEHOLDER)) for word in words}

    def calendar(self) -> Calendar | None:
        """Build the periods; raises CalendarError."""
        return calendar_for(
            self.period,
            timezone=self.timezone,
            starts_at=self.starts_at,
            week_starts=self.week_starts,
            period_format=self.period_format,
            seasons=[Season(season.label, season.start, season.end) for season in self.seasons],
        )

    def shortest_period_s(self) -> float | None:
        """Return how long the board's shortest period lasts, clock changes included; None without sound periods."""
        day = 86_400.0
        regular = {"daily": day - 3600, "weekly": 7 * day - 3600, "monthly": 28 * day - 3600}
        if self.period in regular:
            return regular[self.period]
        try:
            calendar = self.calendar()
        except CalendarError:
            return None
        if calendar is None:
            return None
        seasons = [calendar.named(season.label) for season in self.seasons]
        return min(season.end - season.start for season in seasons)

    def board(self) -> Board:
        """Build the board. Only for settings in which no problem was found."""
        return Board(
            name=self.name,
            key=self.key,
            order=self.order,
            ties=self.ties,
            profiles=self.profiles,
            ttl_s=self.life("ttl_ms") / 1000,
            grace_s=self.life("grace_ms") / 1000,
            edge_ttl_s=self.life("edge_ttl_s"),
            client_ttl_s=self.life("client_ttl_s"),
            stale_while_revalidate_s=self.life("stale_while_revalidate_s"),
            stale_if_error_s=self.life("stale_if_error_s"),
            read_from=self.read_from,
            finished=self.finished,
            settle_s=self.settle_s,
            cache_top=self.caches_top,
            calendar=self.calendar(),
            placeholders=MappingProxyType(self.patterns()),
        )
