"""Problems: what pydantic found wrong, in plain sentences that say what would be right.

Knows: pydantic's error records and the ``Form`` that each key carries.
Must not know: where the values came from, what they are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gateway.errors import Problem
from gateway.settings.forms import Form
from gateway.settings.partial import Section, partial, section_in
from gateway.settings.showing import shown
from gateway.settings.spelling import suggestion

Model = TypeVar("Model", bound=Section)
Location = tuple[str | int, ...]


def validated(model: type[Model], value: object, path: str, problems: list[Problem], *, complete: bool = True) -> Model:
    """Build one model; on failure add each problem, with its path, and build it from what is right.

    ``complete``: whether a key that the table lacks was written nowhere; where that is not known, nothing is required.
    """
    if not isinstance(value, Mapping):
        problems.append(Problem(path, "must be a table"))
        return partial(model, value)
    try:
        built = model.model_validate(value)
    except ValidationError as error:
        records = error.errors(include_url=False)
        judged = [each for each in records if complete or each["type"] != "missing" or len(each["loc"]) > 1]
        problems += dict.fromkeys(_problem(model, each, path) for each in judged)  # a union reports each of its members
        return partial(model, value, complete=complete)
    return built if complete else partial(model, value, complete=False)


def joined(path: str, location: Iterable[str | int]) -> str:
    """Write a path as the problem list shows it: ``leaderboards[0].ttl_ms``."""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def form_of(field: FieldInfo) -> Form:
    """Return what a key takes."""
    for item in field.metadata:
        if isinstance(item, Form):
            return item
    return _form_of_type(field.annotation)


def _form_of_type(annotation: Any) -> Form:
    # pydantic keeps the metadata of a field, not that of a type inside a union or a list: look there.
    if get_origin(annotation) is Literal:
        return Form(_alternatives(get_args(annotation)))
    for item in getattr(annotation, "__metadata__", ()):
        if isinstance(item, Form):
            return item
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)[0]
        if section_in(inner) is not None:
            return Form("a list of tables")
        form = _form_of_type(inner)
        return Form(f"a list; each item {form.text}", form.secret)
    for inner in get_args(annotation):
        if inner is not type(None):
            return _form_of_type(inner)
    return Form("text")


def _alternatives(values: Sequence[object]) -> str:
    quoted = [f'"{value}"' for value in values]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _problem(model: type[Section], record: Mapping[str, Any], path: str) -> Problem:
    location: Location = record["loc"]
    owner, field = _field_at(model, location)
    kind = record["type"]
    if kind == "extra_forbidden":
        where = joined(path, location)
        return Problem(where, suggestion(str(location[-1]), owner.model_fields))
    if field is None:
        return Problem(joined(path, location), "must be a table")
    form = form_of(field)
    where = joined(path, _without_union_members(location))
    if kind == "missing":
        return Problem(where, f"is required, {form.text}")
    if kind == "form":
        return Problem(where, record["msg"])
    if get_origin(field.annotation) is dict and len(location) > 1:
        form = Form("text, a regular expression")
    elif isinstance(location[-1], int):
        form = Form(form.text.removeprefix("a list; each item "), form.secret)
    written = "" if form.secret else f", not {shown(record['input'])}"
    return Problem(where, f"must be {form.text}{written}")


def _without_union_members(location: Location) -> Iterator[str | int]:
    """Leave out what pydantic adds to say which member of a union it tried (``start.date``)."""
    for index, part in enumerate(location):
        if index == 0 or part not in ("date", "datetime", "str"):
            yield part


def _field_at(model: type[Section], location: Location) -> tuple[type[Section], FieldInfo | None]:
    """Return the model and its field that a location ends in; the last field on the way for an item of a list."""
    owner: type[Section] = model
    field: FieldInfo | None = None
    for part in location:
        if isinstance(part, int) or part not in owner.model_fields:
            inner = section_in(field.annotation) if field is not None else None
            if isinstance(part, int) and inner is not None:
                owner, field = inner, None
            continue
        field = owner.model_fields[part]
    return owner, field
