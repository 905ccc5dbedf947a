"""The rows of the comparison: what was asked, what was reached, and how they are printed.

Knows: rows, text and Markdown tables, the markers in a document between which a table is generated.
Must not know: how anything is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    ``asked`` is the least ``median`` that the contract asks for, or the most where ``at_most``; None: nothing is
    asked. ``missing`` says why there is no reading.
    """

    key: str
    what: str
    unit: str = ""
    """Empty: a ratio."""
    asked: float | None = None
    at_most: bool = False
    median: float = math.nan
    least: float = math.nan
    most: float = math.nan
    readings: Mapping[str, float] = field(default_factory=dict)
    """The medians that the ratio was made of, by contender."""
    reading_unit: str = "/s"
    failed: int = 0
    missing: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether what was asked was reached; None where nothing was asked, or nothing could be measured."""
        if self.asked is None or self.missing:
            return None
        if self.failed or math.isnan(self.median):
            return False
        return self.median <= self.asked if self.at_most else self.median >= self.asked

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return what, asked, reached with its spread, the mark, and the readings or what is missing, as text."""
        asked = "" if self.asked is None else f"{'≤' if self.at_most else '≥'} {figure(self.asked, self.unit)}"
        mark = {None: "", True: "yes", False: "NO"}[self.reached]
        if self.missing:
            return self.what, asked, "–", "?" if asked else "", self.missing
        spread = figure(self.median, self.unit)
        if self.least != self.most:
            spread += f" ({figure(self.least, '')}–{figure(self.most, '')})"
        told = ", ".join(f"{name} {figure(value, ' ')}{self.reading_unit}" for name, value in self.readings.items())
        if self.failed:
            told = f"{self.failed} answers failed; " + told
        return self.what, asked, spread, mark, told

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON data, with its outcome."""
        return {**asdict(self), "reached": self.reached}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        """Read what ``as_json`` returned."""
        return cls(**{name: value for name, value in data.items() if name in cls.__dataclass_fields__})


HEADINGS = ("what", "asked", "reached", "", "median readings")


def figure(value: float, unit: str) -> str:
    """Return a number and its unit: a ratio with two decimals, other numbers with three digits or whole."""
    if unit == "%":
        return f"{value:.4f}".rstrip("0").rstrip(".") + " %"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if unit else f"{value:.2f}"
    return f"{text} {unit}".rstrip()


def as_text(rows: Sequence[Row]) -> str:
    """Return the table for a terminal."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the table for a document."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "| --- " * len(HEADINGS) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row.cells()) + " |" for row in rows]
    return "\n".join(lines)


def replaced(document: str, block: str, *, begin: str = BEGIN, end: str = END) -> str:
    """Return the document with what lies between the markers replaced; raise ``ValueError`` if they are not there."""
    start, stop = document.find(begin), document.find(end)
    if start < 0 or stop < start:
        raise ValueError(f"the document has no {begin} … {end}")
    return f"{document[: start + len(begin)]}\n{block}\n{document[stop:]}"
