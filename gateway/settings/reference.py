"""Reference: the settings as a Markdown page, made from the models so that it cannot disagree with them.

Knows: the sections, their forms, defaults and descriptions.
Must not know: where the page is kept.

``python -m gateway.settings.reference > docs/configuration.md`` writes it; a test holds the page to it.
"""

from __future__ import annotations

import inspect
import sys

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gateway.settings.leaderboards import LeaderboardSettings, SeasonSettings
from gateway.settings.loading import SECTIONS
from gateway.settings.partial import Section
from gateway.settings.problems import form_of
from gateway.settings.sections import PurgeTarget
from gateway.settings.showing import toml

_INTRODUCTION = """\
# Configuration

One TOML file, read and checked once at start: `leaderboard-gateway serve --config FILE`. `gateway.example.toml` is the
same list as a file to start from. This page is made from the code by
`python -m gateway.settings.reference > docs/configuration.md`.

- **Every problem is listed at once**, with the key's path and what would be right, and the exit status is 2. An unknown
  key is a problem, and so are keys that contradict each other. What depends on a key that is written wrong is judged
  once that key is right.
- **The environment overrides the file**: `GATEWAY_<SECTION>__<KEY>`, for example `GATEWAY_SERVER__PORT=9000`. A list or
  table is JSON (`GATEWAY_REDIS__REPLICAS='["redis://10.0.0.2:6379/0"]'`), and so is the list of all boards,
  `GATEWAY_LEADERBOARDS`. An empty variable takes the key away, so that its default holds; an empty
  `GATEWAY_LEADERBOARDS` takes away all boards of the file, of which there must be one. Other variables that begin with
  `GATEWAY_`, which orchestrators inject, are ignored with one warning.
- **Secrets** are read from files that hold nothing else, once, at start: restart the gateway after changing such a
  file. They appear in no log, error or metric.
- The file is UTF-8 text of at most 1 MiB; a pipe does as well, as in `--config <(decrypt gateway.toml)`.
- Paths are relative to the folder in which the gateway is started.
- Nothing is read again while the gateway runs (SIGHUP is ignored): restart it to change a setting.
"""

_TABLES: tuple[tuple[str, type[Section]], ...] = (
    *((f"[{name}]", model) for name, model in SECTIONS.items()),
    ("[[cdn.purge]]", PurgeTarget),
    ("[[leaderboards]]", LeaderboardSettings),
    ("[[leaderboards.seasons]]", SeasonSettings),
)


def markdown() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *(_table(title, model) for title, model in _TABLES)])


def _table(title: str, model: type[Section]) -> str:
    purpose = inspect.cleandoc(model.__doc__ or "")
    rows = [_row(key, field) for key, field in model.model_fields.items()]
    head = [f"## `{title}`", "", purpose, "", "| key | takes | default | what it is |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _row(key: str, field: FieldInfo) -> str:
    cells = (f"`{key}`", form_of(field).text, _default(field), field.description or "")
    return f"| {' | '.join(cell.replace('<', '&lt;') for cell in cells)} |"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if field.is_required() or value is PydanticUndefined:
        return "required"
    if value is None:
        return "–"
    return f"`{toml(value)}`"


if __name__ == "__main__":
    sys.stdout.write(markdown())
