"""Log lines: one a record whatever is in it, the same fields as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from gateway import logs
from gateway.settings import LogSettings


@pytest.fixture(autouse=True)
def root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def stream_of(
    form: Literal["text", "json"], level: Literal["debug", "info", "warning", "error"] = "info"
) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(LogSettings(format=form, level=level), process="worker-1", stream=stream)
    return stream


def test_text_is_time_level_process_logger_message_and_fields() -> None:
    stream = stream_of("text")
    logging.getLogger("gateway.x").warning("node %s is down", "a", extra={"lag_s": 2.5, "link": "not up", "gone": None})
    line = stream.getvalue()
    assert line[19:24:4] == ".Z"
    assert line[25:] == 'WARNING worker-1 gateway.x: node a is down lag_s=2.5 link="not up"\n'


def test_json_has_the_same_as_fields_of_an_object() -> None:
    stream = stream_of("json")
    logging.getLogger("gateway.x").info("served", extra={"request_id": "r1", "traceparent": None, "level": "mine"})
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "process": "worker-1",
        "logger": "gateway.x",
        "message": "served",
        "request_id": "r1",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_a_client_sent_ends_a_line_or_begins_another(form: Literal["text", "json"]) -> None:
    stream = stream_of(form)
    evil = 'x\r\n2026-01-01 INFO forged\u2028\x1b[2J"'
    logging.getLogger("gateway.x").info("said %s", evil, extra={"request_id": evil})
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_an_access_line_says_each_thing_once_as_text() -> None:
    stream = stream_of("text")
    fields = {"client": "10.0.0.1", "method": "GET", "target": "/x", "status": "200", "request_id": "r1"}
    logging.getLogger("gateway.access").info("10.0.0.1 GET /x 200", extra=fields)
    assert stream.getvalue().endswith("gateway.access: 10.0.0.1 GET /x 200 request_id=r1\n")


def raise_and_log() -> None:
    try:
        int("broken")
    except ValueError:
        logging.getLogger("gateway.x").exception("failed")


def test_an_exception_stays_with_its_record() -> None:
    text = stream_of("text")
    raise_and_log()
    first, *rest = text.getvalue().splitlines()
    assert first.endswith("gateway.x: failed")
    assert all(line.startswith("    ") for line in rest)
    assert "ValueError: invalid" in rest[-1]
    as_json = stream_of("json")
    raise_and_log()
    assert json.loads(as_json.getvalue())["exception"].endswith("'broken'")


def test_the_level_is_the_least_that_is_written_and_libraries_only_warn() -> None:
    stream = stream_of("text", "warning")
    logging.getLogger("gateway.x").info("no")
    assert stream.getvalue() == ""
    stream = stream_of("text", "debug")
    logging.getLogger("uvicorn.error").info("no")
    logging.getLogger("gateway.x").debug("yes")
    assert stream.getvalue().count("\n") == 1
