"""``bricks explain --without``: the latency of models without some of their nodes.

Here because it is another question than where the time goes. Must not know how graphs are edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bricks.cli.options import DetailOptions, EstimateOptions, TargetOptions
from bricks.cli.output import finish, print_json, show_answer
from bricks.cli.predict import asked_target
from bricks.cli.reading import decomposed, read_all
from bricks.cli.workspaces import open_workspace, target_facts
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.analysis.explain import Explainer
    from bricks.analysis.what_if import Removed
    from bricks.graph.model import Model
    from bricks.system import Target


def explain_without(
    options: EstimateOptions, asked: TargetOptions, texts: Sequence[str], detail: DetailOptions
) -> None:
    """Print the latency of each model without the nodes that the patterns in ``texts`` match."""
    from bricks.analysis.explain import Explainer
    from bricks.report.answers.what_if import removal_answers
    from bricks.units.facts import json_of

    patterns = [name for text in texts for name in text.split(",") if name]
    with open_workspace(options, elsewhere=asked.system is not None) as workspace:
        target, here = asked_target(workspace, options, asked), workspace.target
        measure = not asked.no_measure and asked.system is None
        insight = Explainer(workspace, target, measure=measure)
        models = decomposed(workspace, read_all(options).models)
        found = [_removed(insight, model, patterns) for model in models]
    if options.general.json:
        answer = removal_answers(found, target, here)
        facts = target_facts(target, options)
        print_json({"answer": answer, **facts, "models": json_of(found)})
    else:
        for of in found:
            if of.what_if is not None:
                _show(of, target, here, every=detail.every)
    finish(dict.fromkeys(of.error for of in found if of.error is not None))


def _removed(insight: Explainer, model: Model | Unread, patterns: Sequence[str]) -> Removed:
    from bricks.analysis.what_if import Removed, removed

    if isinstance(model, Unread):
        return Removed(model.name, tuple(patterns), error=model.error)
    return removed(insight, model, patterns)


def _show(of: Removed, target: Target, here: Target, *, every: bool) -> None:
    from bricks.report.answers.what_if import removal_answer, removal_remarks
    from bricks.report.gains import changes_table

    parts: list[Any] = []
    if of.before is not None and of.after is not None:
        parts.append(changes_table(of.before, of.after, every=every))
    answer = removal_answer(of, target, here)
    show_answer(answer, *parts, remarks=removal_remarks(of), every=every)
