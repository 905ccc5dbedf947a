"""Unit tests run far from UTC, where nearly every hour of the day has another date.

Knows: the process's time zone.
Must not know: any test.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

FAR = "<+14>-14"
"""UTC+14, as in Kiritimati, said as POSIX does: it needs no time zone database."""


@pytest.fixture(autouse=True, scope="module")
def far_from_utc() -> Iterator[None]:
    """Let local time be another than UTC: what takes one for the other shows, on a host set to UTC as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", FAR)
        time.tzset()
        assert time.localtime(0).tm_hour == 14
        yield
    time.tzset()
