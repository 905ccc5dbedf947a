"""Partial: a table of the file of which some keys are right and some are not, so that the right ones are checked too.

Knows: which keys of a model have no value, and why a check that asks for one must end there.
Must not know: which keys there are, what is checked, how a problem is worded.

Rules that hold for everything here:

- A key that was written wrong, or whose name was, has no value; it never stands at its default. Asking for it raises
  ``Doubtful``, so that no contradiction is found that goes away once the key is mended.
- Checks are small generators, run by ``certain``: one that meets a doubtful key says no more, the others go on.
- Only a table without any problem becomes a part of ``Settings``: nobody else ever meets a doubtful key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, create_model
from pydantic.fields import FieldInfo

from gateway.errors import Problem
from gateway.settings.spelling import meant


class Doubtful(Exception):
    """A check asked for a key whose value nobody knows: no failure, it ends the check."""


class Section(BaseModel):
    """A table of the file: strict types, no unknown keys, never changed once read."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)

    _sound: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def doubtful(self) -> frozenset[str]:
        """The keys that have no value; none in a table without problems."""
        return frozenset(type(self).model_fields.keys() - self.__dict__.keys())

    def wrote(self, key: str) -> bool:
        """Return whether somebody wrote this key, right or wrong. Raises Doubtful where its name may be misspelt."""
        if key not in self.model_fields_set and key in self.doubtful:
            raise Doubtful(key)
        return key in self.model_fields_set

    def gives(self, key: str) -> bool:
        """Return whether there is something in this key, right or wrong. Raises Doubtful as ``wrote`` does."""
        return self.wrote(key) if key in self.doubtful else bool(getattr(self, key))

    def sound(self, key: str) -> Any:
        """Return a list or table; of one that holds faults, what is right in it."""
        return self._sound.get(key, ()) if key in self.doubtful else getattr(self, key)

    if not TYPE_CHECKING:  # a type checker would take every misspelt attribute for one

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise Doubtful(name)
            return super().__getattr__(name)


Model = TypeVar("Model", bound=Section)


def certain(*checks: Iterator[Problem]) -> Iterator[Problem]:
    """Run each check until it ends, or meets a doubtful key."""
    for check in checks:
        with suppress(Doubtful):
            yield from check


def partial(model: type[Model], value: object, *, complete: bool = True) -> Model:
    """Build a model from what is right in a table. ``complete``: whether a key that it lacks was written nowhere."""
    table: Mapping[str, object] = value if isinstance(value, Mapping) else {}
    fields = model.model_fields
    misspelt = {meant(name, fields) or name for name in table.keys() - fields.keys()}
    right: dict[str, object] = {}
    in_part: dict[str, Any] = {}
    for key in fields.keys() & table.keys():
        try:
            right[key] = _value(fields[key], table[key])
        except ValidationError:
            in_part[key] = _right_items(fields[key], table[key])
    unknown = {*in_part, *(misspelt - table.keys())}
    if table is not value or not complete:
        unknown |= fields.keys() - table.keys()
    section = model.model_construct(_fields_set=fields.keys() & table.keys(), **right)
    for key in unknown & section.__dict__.keys():  # defaults
        del section.__dict__[key]
    section._sound.update(in_part)  # noqa: SLF001 - nobody but this function builds one
    return section


def section_in(annotation: Any) -> type[Section] | None:
    """Return the model that an annotation is about, as ``Model`` or ``tuple[Model, ...]``; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(section_in, get_args(annotation))), None)


def _value(field: FieldInfo, value: object) -> object:
    inner = section_in(field.annotation)
    if inner is not None and isinstance(value, list):
        return tuple(partial(inner, item) for item in value)
    definition: Any = (field.annotation, field)
    alone: Any = create_model("Alone", __base__=Section, value=definition)
    return alone.model_validate({"value": value}).value


def _right_items(field: FieldInfo, value: object) -> Any:
    """Return what is right in a list or table, each item being tried alone."""
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if _is_right(field, {key: item})}
    return tuple(item for item in value if _is_right(field, [item])) if isinstance(value, list) else ()


def _is_right(field: FieldInfo, value: object) -> bool:
    try:
        _value(field, value)
    except ValidationError:
        return False
    return True
