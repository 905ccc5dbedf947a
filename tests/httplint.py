"""httplint: ask the linter what it thinks of an answer, in one call.

Knows: httplint's API, and the one remark that the contract accepts.
Must not know: who sent the answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from httplint import HttpRequestLinter, HttpResponseLinter, levels
from httplint.i18n import translate

ACCEPTED = frozenset({"STORE_PUBLIC_UNNECESSARY"})
"""``public`` is there for clients that send Authorization, which the linter cannot know of."""

RESTATED = frozenset({"STATUS_BAD_REQUEST", "STATUS_URI_TOO_LONG"})
"""Complaints about the request, which say no more than the status does."""


def lint(raw: bytes, *, method: str = "GET", target: str = "/", headers: Iterable[tuple[str, str]] = ()) -> list[str]:
    """Return the linter's complaints about one raw HTTP/1.1 response: bad ones and warnings, the accepted one not.

    ``method``, ``target`` and ``headers`` are the request's: an answer to HEAD has a length and no body, only a
    preflight may be told what a preflight is told.
    """
    linter = HttpResponseLinter(no_content=method == "HEAD", _related=_request(method, target, headers))
    head, _, body = raw.partition(b"\r\n\r\n")
    top, *lines = head.split(b"\r\n")
    version, status, *phrase = top.split(b" ", 2)
    linter.process_response_topline(version.rpartition(b"/")[2], status, b" ".join(phrase))
    fields = [tuple(line.split(b":", 1)) for line in lines]
    linter.process_headers([(name, value) for name, value in fields])
    if body:
        linter.feed_content(body)
    linter.finish_content(complete=True)
    notes = [*linter.notes, *(each for note in linter.notes for each in note.subnotes)]
    return [
        f"{type(note).__name__} [{note.level.value}] {note.subject}: {translate(note.summary)}"
        for note in notes
        if note.level in (levels.BAD, levels.WARN) and type(note).__name__ not in ACCEPTED | RESTATED
    ]


def _request(method: str, target: str, headers: Iterable[tuple[str, str]]) -> HttpRequestLinter:
    request = HttpRequestLinter()
    request.process_request_topline(method.encode(), f"http://gateway.example{target}".encode(), b"1.1")
    fields = [("Host", "gateway.example"), *headers]
    request.process_headers([(name.encode(), value.encode()) for name, value in fields])
    request.finish_content(complete=True)
    return request
