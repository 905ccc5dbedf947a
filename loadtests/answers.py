"""Prepared answers: what a server sent once, kept in a file for the constant endpoint to send again.

Knows: status, header lines, body.
Must not know: who sends them, or why.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Prepared(NamedTuple):
    """One answer, as it is to be sent."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


def save(path: Path, answers: Mapping[str, Prepared]) -> None:
    """Write answers by the end of the paths they are for; the empty one is for every other path."""
    path.write_text(
        json.dumps(
            {
                suffix: {
                    "status": answer.status,
                    "headers": [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers],
                    "body": b64encode(answer.body).decode(),
                }
                for suffix, answer in answers.items()
            }
        )
    )


def load(path: Path) -> dict[str, Prepared]:
    """Read what ``save`` wrote."""
    return {
        suffix: Prepared(
            answer["status"],
            [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer["headers"]],
            b64decode(answer["body"]),
        )
        for suffix, answer in json.loads(path.read_text()).items()
    }
