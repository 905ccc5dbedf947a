"""Local time: at which instant a clock on the wall of a time zone first shows a given time.

Knows: zoneinfo, clock changes.
Must not know: periods, labels, this machine's own zone or ``TZ``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOST_ZONES = ("localtime", "posixrules")
"""Files that stand for whatever the machine is set to: instances would disagree about the same key."""


def zone_named(name: str) -> ZoneInfo:
    """Return a zone of the IANA database (the system's, else the tzdata package's); raise ValueError."""
    if name in _HOST_ZONES or name.startswith(("right/", "posix/")):
        raise ValueError(f"{name!r} is not a zone of its own; give one such as 'Europe/London'")
    try:
        return ZoneInfo(name)
    # A folder of the database ("Europe") is an OSError, a name that leaves it ("../x") a ValueError.
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {name!r}; give an IANA name such as 'Europe/London'") from error


def first_instant(local: datetime, zone: tzinfo) -> float:
    """Return the wall second at which the zone's clock first shows ``local`` (naive) or later.

    A time that happens twice is its first occurrence; one that a clock change skips is the instant of the
    change. Whole seconds in, whole seconds out.
    """
    # PEP 495: in a gap fold=0 takes the offset before the change and fold=1 the one after it; in an overlap
    # fold=0 is the first occurrence. Elsewhere both agree.
    first = _seconds(local, zone, fold=0)
    second = _seconds(local, zone, fold=1)
    if first <= second:
        return float(first)
    low, high = second, first  # in a gap: the clock shows less than `local` at low, more at high
    while high - low > 1:
        middle = (low + high) // 2
        if shown_at(middle, zone) < local:
            low = middle
        else:
            high = middle
    return float(high)


def shown_at(wall: float, zone: tzinfo) -> datetime:
    """Return what the zone's clock shows at this wall second, naive."""
    return datetime.fromtimestamp(wall, zone).replace(tzinfo=None, fold=0)


def _seconds(local: datetime, zone: tzinfo, *, fold: int) -> int:
    # Aware minus aware in different zones goes through UTC; in the same zone it would ignore the offsets.
    return (local.replace(tzinfo=zone, fold=fold) - _EPOCH) // timedelta(seconds=1)
