"""The sample file and the configuration page are held to the models: every key, every default."""

from __future__ import annotations

import contextlib
import re
import tomllib
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from gateway.errors import SettingsError
from gateway.settings import (
    SECTIONS,
    LeaderboardSettings,
    PurgeTarget,
    SeasonSettings,
    load,
)
from gateway.settings.partial import Section
from gateway.settings.reference import markdown
from gateway.settings.showing import toml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "gateway.example.toml"
TABLES: dict[str, type[Section]] = {
    **SECTIONS,
    "cdn.purge": PurgeTarget,
    "leaderboards": LeaderboardSettings,
    "leaderboards.seasons": SeasonSettings,
}
SHOWN_ON_PURPOSE = {("cdn", "dialects"), ("last_known", "store"), ("redis", "primary")}
"""What the sample sets to something else than the default, uncommented."""

_TABLE = re.compile(r"(# )?\[\[?([a-z_.]+)\]\]?")
_KEY = re.compile(r"(# )?([a-z_]+) = (.*)")


def keys_of_the_example() -> dict[str, dict[str, tuple[bool, str]]]:
    """Return table → key → (commented out?, the text of its value and comment)."""
    tables: dict[str, dict[str, tuple[bool, str]]] = {}
    for line in EXAMPLE.read_text().splitlines():
        if (table := _TABLE.match(line)) is not None:
            current = tables.setdefault(table[2], {})
        elif (key := _KEY.match(line)) is not None:
            assert key[2] not in current, line
            current[key[2]] = (key[1] is not None, key[3])
    return tables


def value_of(text: str) -> object:
    return tomllib.loads(f"value = {text}")["value"]


def test_the_sample_has_every_table_and_key_once_and_no_other() -> None:
    found = {table: set(keys) for table, keys in keys_of_the_example().items()}
    nested = {("cdn", "purge"), ("leaderboards", "seasons")}
    expected = {
        table: {key for key in model.model_fields if (table, key) not in nested} for table, model in TABLES.items()
    }
    assert found == expected


@pytest.mark.parametrize("table", TABLES)
def test_what_the_sample_comments_out_is_the_default(table: str) -> None:
    for key, (commented, text) in keys_of_the_example()[table].items():
        field: FieldInfo = TABLES[table].model_fields[key]
        default = field.get_default(call_default_factory=True, validated_data={})
        if field.is_required() or (table, key) in SHOWN_ON_PURPOSE:
            continue
        assert commented, f"{table}.{key} is set in the sample"
        if default is not None:
            assert toml(value_of(text)) == toml(default), f"{table}.{key}"


def test_the_sample_is_a_valid_file_as_it_stands_and_with_everything_uncommented(tmp_path: Path) -> None:
    assert [board.name for board in load(EXAMPLE, {}).boards] == ["downloads"]
    lines = [re.sub(r"^# (?=(\[|[a-z_]+ = ))", "", line) for line in EXAMPLE.read_text().splitlines()]
    path = tmp_path / "all.toml"
    path.write_text("\n".join(lines))
    parsed = tomllib.loads(path.read_text())
    for name, model in SECTIONS.items():
        assert set(parsed[name]) == set(model.model_fields), name
    for table, keys in keys_of_the_example().items():
        for key, (_, text) in keys.items():
            assert value_of(text) is not None, f"{table}.{key}"


def test_the_configuration_page_is_what_the_models_say() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == markdown(), "run: python -m gateway.settings.reference > docs/configuration.md"


@pytest.mark.parametrize(
    ("section", "key"), [(section, key) for section, model in SECTIONS.items() for key in model.model_fields]
)
def test_every_key_of_every_section_is_reached_by_its_variable(section: str, key: str) -> None:
    """Text that few keys accept: either the key holds it, or the problem found is this key's."""
    environ = {"GATEWAY_SHARED_TIER__URL": "redis://a"} if section == "shared_tier" else {}
    environ[f"GATEWAY_{section}__{key}".upper()] = '{"odd": 1}'
    with contextlib.suppress(SettingsError):
        settings = load(EXAMPLE, environ)
        assert settings.warnings == ()
        assert str(getattr(getattr(settings, section), key)) == '{"odd": 1}'
        return
    with pytest.raises(SettingsError, match=key):
        load(EXAMPLE, environ)
