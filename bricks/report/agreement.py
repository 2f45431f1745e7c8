"""What answers over several runtimes say where these compute different results.

Must not compare outputs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.report.words import count_text, listed, verb

if TYPE_CHECKING:
    from bricks.session.agreement import Agreement


def differing(
    agreements: Sequence[Agreement], runtime: str | None = None, *, models: int = 1
) -> str:
    """The end of a sentence about ``models`` where runtimes compute different results, else empty.

    An answer about one ``runtime`` says it where that one errs, or may.
    """
    differ = [pair for pair in agreements if pair.concerns(runtime)]
    if not differ:
        return ""
    wrong = list(dict.fromkeys(name for pair in differ for name in pair.verdict.errs or ()))
    how = "they compute different results"
    if wrong and all(pair.verdict.errs for pair in differ):
        how = f"{listed(wrong)} {verb(len(wrong), 'computes', 'compute')} something else"
    elif runtime is not None:
        names = (name for pair in differ for name in (pair.one, pair.other))
        others = [name for name in dict.fromkeys(names) if name != runtime]
        how = f"{listed(others)} {verb(len(others), 'computes', 'compute')} other results"
    if models > 1:
        count = len({pair.model for pair in differ})
        how = f"for {count_text(count, 'model')}, {how}"
    return f"; but {how}"


def agreement_remarks(
    agreements: Sequence[Agreement],
    words: Mapping[str, str] = MappingProxyType({}),
    runtime: str | None = None,
) -> list[str]:
    """A line for each model for which two runtimes compute different results.

    ``words`` name models on a command line, by the models' names. See :func:`differing` for
    ``runtime``.
    """
    differ = [pair for pair in agreements if pair.concerns(runtime)]
    return [_disagreement(pair, words.get(pair.model)) for pair in differ]


def _disagreement(pair: Agreement, word: str | None) -> str:
    verdict = pair.verdict
    how = f"with {pair.other}, {verdict.reason}".replace("the reference", pair.one)
    if verdict.difference is not None:
        how = f"it differs by {_share(verdict.difference)} of its greatest value"
        how += f" ({_share(verdict.allowed or 0.0)} would be rounding)"
    who = f"{pair.one} and {pair.other} compute different results, and no reference says who errs"
    if verdict.errs:
        others = [name for name in (pair.one, pair.other) if name not in verdict.errs]
        who = f"{listed(verdict.errs)} {verb(len(verdict.errs), 'errs', 'err')}"
        who += f" by a reference in double precision, {others[0]} does not" if others else ""
    line = (
        f"{printable(pair.model)}: {who}, so latencies do not compare: of output"
        f" {printable(str(verdict.output))!r}, {how}."
    )
    if word is None or " " in pair.one:  # two versions of one runtime
        return line
    named = ("--runtime", pair.one, "--runtime", pair.other)
    return f"{line} More: {shlex.join(['bricks', 'validate', 'models', word, *named])}"


def unknown_agreements(agreements: Sequence[Agreement]) -> list[str]:
    """A line for each model whose outputs with two runtimes were not compared, and why."""
    return [
        f"{printable(pair.model)}: whether {pair.one} and {pair.other} compute the same is not"
        f" known: {pair.verdict.reason}."
        for pair in agreements
        if pair.verdict.agree is None
    ]


def _share(share: float) -> str:
    return f"{share:.2g} times" if share > 1 else f"{100 * share:.2g} %"
