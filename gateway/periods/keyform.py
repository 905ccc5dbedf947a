"""Key forms: a period's start date written as a key wants it (``%Y%m%d``), the same in every locale.

Knows: the directives of strftime that make sense for a date.
Must not know: which periods there are, or where the form is used.

``date.strftime`` asks the C library, whose month names follow the process's locale and whose directives
differ by platform: two instances could write two keys for one period.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from types import MappingProxyType

Form = Callable[[date], str]

_MONTHS = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905 - reads as a list of names
)
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905 - same


def _year_day(day: date) -> int:
    return day.toordinal() - date(day.year, 1, 1).toordinal() + 1


_DIRECTIVES: MappingProxyType[str, Form] = MappingProxyType(
    {
        "Y": lambda day: f"{day.year:04}",
        "y": lambda day: f"{day.year % 100:02}",
        "m": lambda day: f"{day.month:02}",
        "d": lambda day: f"{day.day:02}",
        "j": lambda day: f"{_year_day(day):03}",
        "B": lambda day: _MONTHS[day.month - 1],
        "b": lambda day: _MONTHS[day.month - 1][:3],
        "A": lambda day: _DAYS[day.weekday()],
        "a": lambda day: _DAYS[day.weekday()][:3],
        "u": lambda day: str(day.isoweekday()),
        "w": lambda day: str(day.isoweekday() % 7),
        "G": lambda day: f"{day.isocalendar().year:04}",
        "g": lambda day: f"{day.isocalendar().year % 100:02}",
        "V": lambda day: f"{day.isocalendar().week:02}",
        # C's strftime: weeks of the year counted from its first Sunday (U) or Monday (W), 00 before it.
        "U": lambda day: f"{(_year_day(day) + 6 - day.isoweekday() % 7) // 7:02}",
        "W": lambda day: f"{(_year_day(day) + 6 - day.weekday()) // 7:02}",
    }
)
_DIRECTIVE = re.compile(r"%(-?)(.?)", re.DOTALL)


def compile_form(text: str) -> Form:
    """Return the function that writes a date in this form; raise ValueError for a directive it lacks.

    ``%-d`` and the like leave the leading zeros out, as the C libraries of Linux and macOS do.
    """
    parts: list[str | Form] = []
    end = 0
    for match in _DIRECTIVE.finditer(text):
        parts += [text[end : match.start()], _directive(match)]
        end = match.end()
    parts.append(text[end:])
    return lambda day: "".join([part if isinstance(part, str) else part(day) for part in parts])


def _directive(match: re.Match[str]) -> str | Form:
    bare, letter = match.groups()
    if match.group() == "%%":
        return "%"
    write = _DIRECTIVES.get(letter)
    if write is None:
        known = " ".join(f"%{name}" for name in (*_DIRECTIVES, "%"))
        raise ValueError(f"{match.group()!r} is not a directive for a date; there are {known}")
    return (lambda day: write(day).lstrip("0") or "0") if bare else write
