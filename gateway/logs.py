"""Logs: one line a record on standard error, as text for people or as JSON for machines.

Knows: how a record's message and its extra fields (``extra={"request_id": …}``) become a line.
Must not know: what is logged, or where.

What a client sent can stand in a field: no character of it can end a line or begin another.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal, Protocol, TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_IN_MESSAGE = frozenset({"client", "method", "target", "status"})
"""What an access line's message already says, left out where the message is shown."""

_QUIET = ("uvicorn", "asyncio", "redis", "httpx", "httpcore", "aiocache")
"""Libraries whose warnings are of interest and whose news are not."""


class LogSettings(Protocol):
    """What of the settings matters here."""

    @property
    def format(self) -> Literal["text", "json"]: ...

    @property
    def level(self) -> str: ...


def configure(settings: LogSettings, *, process: str, stream: TextIO | None = None) -> None:
    """Send every record of this process to ``stream`` (standard error). ``process`` names it in each line."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(process) if settings.format == "json" else TextFormatter(process))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03}Z"


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Yield what the caller added to the record, in its order; None is as good as not added."""
    for key, value in vars(record).items():
        if key not in _STANDARD and not key.startswith("_") and value is not None:
            yield key, value


def _trace(record: logging.LogRecord) -> str | None:
    if not record.exc_info or record.exc_info[0] is None:
        return None
    return "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")


class TextFormatter(logging.Formatter):
    """``2026-11-30T20:28:00.123Z INFO worker-0 gateway.server: message key=value``."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the trace of an exception, each of its lines indented."""
        access = record.name == "gateway.access"
        said = _one_line(record.getMessage().rstrip())
        words = [f"{_time(record)} {record.levelname} {self._process} {record.name}: {said}"]
        words += [f"{key}={_word(value)}" for key, value in _fields(record) if not (access and key in _IN_MESSAGE)]
        trace = _trace(record)
        if trace is not None:
            words[-1] += "\n    " + trace.replace("\n", "\n    ")
        return " ".join(words)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``process``, ``logger``, ``message``, then the fields."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an exception's trace is the field ``exception``."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in _fields(record):
            line.setdefault(key, value)
        trace = _trace(record)
        if trace is not None:
            line["exception"] = trace
        return json.dumps(line, default=str)


def _one_line(text: str) -> str:
    """Escape what could end a line or drive a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _word(value: object) -> str:
    """Write a field's value so that its end is plain: quoted where it has a space, a quote or a control in it."""
    text = str(value)
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
