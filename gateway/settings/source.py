"""Source: the TOML file with the environment laid over it, as plain tables.

Knows: TOML, and how ``GATEWAY_<SECTION>__<KEY>`` names a key.
Must not know: what any value means; only whether a key takes text, so that it is not read as JSON.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from gateway.errors import Problem
from gateway.settings.reading import content

Table: TypeAlias = dict[str, object]

PREFIX = "GATEWAY_"
BOARDS = "leaderboards"

MOST_IN_A_FILE = 1_048_576
"""Bytes: room for thousands of boards. A device without an end is no file of settings."""
_DEEP = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")
"""Keys of keys of keys: what tomllib makes of them grows with the square of their number."""


@dataclass
class Source:
    """What the file and the environment say, not yet checked."""

    tables: Table
    origins: dict[str, str] = field(default_factory=dict)
    """Key path → the variable that set it, so that a problem names the place to mend."""
    problems: list[Problem] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    """The tables of which not all that was written could be read: what they lack may well have been there."""
    ignored: list[str] = field(default_factory=list)
    """Variables that begin with GATEWAY_ and name no section; orchestrators inject such."""


def read(path: Path, environ: Mapping[str, str], sections: Mapping[str, Iterable[str]]) -> Source:
    """Read the file and lay the environment over it. ``sections``: section → its keys that take text."""
    source = Source({})
    try:
        source.tables = _tables(content(path, most=MOST_IN_A_FILE).decode("utf-8-sig"))
    except OSError as error:
        source.problems.append(Problem(str(path), f"cannot read the file: {error.strerror}"))
    except UnicodeDecodeError as error:
        source.problems.append(Problem(str(path), f"must be UTF-8 text; byte {error.start} is not"))
    except tomllib.TOMLDecodeError as error:
        source.problems.append(Problem(str(path), f"is not TOML: {error}"))
    except RecursionError:
        source.problems.append(Problem(str(path), "is nested too deeply"))
    except ValueError:  # Python's limit on digits
        source.problems.append(Problem(str(path), "holds a number of thousands of digits"))
    if source.problems:
        source.lost = {*sections, BOARDS}
    texts = {section: frozenset(keys) for section, keys in sections.items()}
    for name in sorted(environ):
        if name.startswith(PREFIX):
            _lay_over(source, name, environ[name], texts)
    return source


def _lay_over(source: Source, name: str, text: str, texts: Mapping[str, frozenset[str]]) -> None:
    section, separator, key = name.removeprefix(PREFIX).lower().partition("__")
    if section == BOARDS and not separator:
        _boards(source, name, text)
        return
    if section not in texts or not key:
        source.ignored.append(name)
        return
    table = source.tables.setdefault(section, {})
    if not isinstance(table, dict):
        return  # the file has something else where a table belongs; that is the problem to report
    source.origins[f"{section}.{key}"] = name
    if not text:
        table.pop(key, None)
        return
    table[key] = text if key in texts[section] else _value(text)


def _boards(source: Source, name: str, text: str) -> None:
    source.origins[BOARDS] = name
    source.tables.pop(BOARDS, None)
    source.lost.discard(BOARDS)
    if not text:
        return
    try:
        source.tables[BOARDS] = json.loads(text)
    except (ValueError, RecursionError) as error:
        source.problems.append(Problem(BOARDS, f"must be a JSON list of tables: {_reason(error)}"))
        source.lost.add(BOARDS)


def _tables(text: str) -> Table:
    if _DEEP.search(text) is not None:
        raise RecursionError
    return tomllib.loads(text)


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return str(error)
    return (
        "it is nested too deeply" if isinstance(error, RecursionError) else "it holds a number of thousands of digits"
    )


def _value(text: str) -> object:
    """Read a value as JSON, or leave it the text it is: the check of its key then says what is right."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
