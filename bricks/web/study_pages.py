"""The studies that have a page, the form of each, and the options of a study from a query.

They are studies of bricks, and those that other packages offer. Fields of a form follow from the
dataclass of the study's options.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from bricks.errors import UsageError, suggestion
from bricks.studies import generation, scaling, study
from bricks.studies.options import OptionField, flag_of, made, option_fields

if TYPE_CHECKING:
    from bricks.studies.study import StudyOffer, StudyPage

# Longer values are no typed ones.
_MOST_TEXT = 64

NUMBER, TEXT, CHOICE, FLAG, NAME = "number", "text", "choice", "flag", "name"


def study_pages() -> Iterator[tuple[StudyOffer, StudyPage]]:
    """The studies with a page, and their pages."""
    others = (study.offer(name) for name in study.names())
    for each in (generation.OFFER, scaling.OFFER, *others):
        if each is not None and each.page is not None:
            yield each, each.page


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form, called ``name`` in the query.

    ``kind`` is one of the constants of this module; a ``NAME`` has many ``choices``. ``value`` is
    the typed value, or the default.
    """

    name: str
    title: str
    kind: str
    value: str
    placeholder: str
    choices: Sequence[str] = ()
    least: float | None = None
    most: float | None = None
    whole: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class StudyForm:
    """The form of the study ``offer``, whose hosts may be the known ``systems``."""

    offer: StudyOffer
    page: StudyPage
    systems: Sequence[str]

    def fields(self, query: Mapping[str, str]) -> list[FormField]:
        """The fields, with the values of ``query``, else the defaults of the page."""
        return [self._field(of, query) for of in self._shown()]

    def options(self, query: Mapping[str, str]) -> Any:
        """The options of the study; :class:`UsageError` for a value that makes no sense."""
        values: dict[str, Any] = {}
        for of in self._shown():
            typed = query.get(of.name, "")[:_MOST_TEXT].strip()
            if typed:
                values[of.name] = self._checked(of, typed)
            elif of.default is MISSING:
                raise UsageError(f"{self._title(of)} is missing: give one")
        return made(self.offer.options, values)

    def asked(self, query: Mapping[str, str]) -> dict[str, str]:
        """The values of ``query`` that belong to the form, in its order."""
        typed = {of.name: query.get(of.name, "")[:_MOST_TEXT].strip() for of in self._shown()}
        return {name: text for name, text in typed.items() if text}

    def command(self, query: Mapping[str, str]) -> str:
        """The command that asks the same on a command line."""
        words = ["bricks", self.offer.name]
        fields = {of.name: of for of in self._shown()}
        for name, text in self.asked(query).items():
            flag = [] if fields[name].option.argument else [flag_of(name)]
            words += flag if _kind(fields[name]) is bool else [*flag, text]
        return shlex.join(words)

    def _shown(self) -> Iterator[OptionField]:
        """The options that the page asks for, in its order."""
        known = {of.name: of for of in option_fields(self.offer.options)}
        yield from (known[name] for name in self.page.fields)

    def _title(self, of: OptionField) -> str:
        return self.page.fields[of.name]

    def _field(self, of: OptionField, query: Mapping[str, str]) -> FormField:
        choices, shown = self._choices(of), of.option.shown
        default = "" if of.default in (MISSING, None, False) else str(of.default)
        if isinstance(shown, str):
            default = shown
        if of.option.argument:
            default = next(iter(choices), "")
        preset = self.page.defaults.get(of.name, "")
        return FormField(
            of.name,
            self._title(of),
            self._form(of, choices),
            query.get(of.name, preset)[:_MOST_TEXT],
            default,
            choices,
            of.option.least,
            of.option.most,
            _kind(of) is int,
            of.default is MISSING,
        )

    def _choices(self, of: OptionField) -> Sequence[str]:
        if of.option.argument:
            return self.page.subjects()
        if of.option.values == "systems":
            return self.systems
        return [*of.option.values] if isinstance(of.option.values, Mapping) else ()

    def _form(self, of: OptionField, choices: Sequence[str]) -> str:
        if of.option.argument:
            return NAME
        if choices or of.option.values == "systems":
            return CHOICE
        kinds = {int: NUMBER, float: NUMBER, bool: FLAG}
        return kinds.get(_kind(of), TEXT)

    def _checked(self, of: OptionField, text: str) -> Any:
        """The value that a command would get for ``text``: nothing outside the choices."""
        choices, kind = self._choices(of), _kind(of)
        known = text in choices or (of.option.argument and self.page.accepts(text))
        if (choices or of.option.argument) and not known:
            meant = suggestion(text, choices, "give one of")
            raise UsageError(f"{self._title(of)} {text!r} is not known here: {meant}")
        if kind is bool:
            return True
        if kind not in (int, float):
            return [text] if kind is list else text
        title = self._title(of)
        try:
            value = kind(text)
        except ValueError:
            raise UsageError(f"{title} {text!r} is no number: give one such as 8") from None
        least, most = of.option.least, of.option.most
        if (least is not None and value < least) or (most is not None and value > most):
            limits = f"from {least:g}" if most is None else f"from {least or 0:g} to {most:g}"
            raise UsageError(f"{title} {text} makes no sense: give a number {limits}")
        return value


def _kind(of: OptionField) -> Any:
    """The type of the typed value: int, float, bool, list, or str for any other."""
    kind = of.kind if of.option.read is None else of.option.written
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    plain = [get_origin(each) or each for each in kinds if each is not NoneType]
    return next((each for each in plain if each in (int, float, bool, list)), str)
