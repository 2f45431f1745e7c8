"""A report as one self-contained HTML file: no network, no server, no other file.

Templates are next to this module; Jinja escapes all model names, and scripts only ever set text.
Must not compute results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.analysis.cache_summary import CacheSummary, ModelView, TargetView
from bricks.analysis.runtimes import RuntimeChoice, choices
from bricks.compose.estimate import IncompleteEstimate
from bricks.compose.memory.peak import PeakMemory, UnknownMemory
from bricks.errors import UsageError, printable
from bricks.report.figures import target_text
from bricks.report.page_data import page_data
from bricks.report.prediction import phase_lines
from bricks.report.runtimes import loss_text, risk_text
from bricks.report.tables import billions, peak_parts, peak_size, percent, seconds, size
from bricks.report.wide_intervals import ShownEstimate, advice, wide_lines
from bricks.system import Target
from bricks.system.names import labels_of

if TYPE_CHECKING:
    import jinja2

_TEMPLATES = Path(__file__).with_name("templates")

# Number of bricks in the table of a zoo's costliest bricks.
_MAX_COSTLY = 100


def check_renderer() -> None:
    """Raise :class:`UsageError` if the packages that make pages are not installed."""
    try:
        import altair  # noqa: F401  # only checks that they are installed
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as exc:
        raise UsageError(
            f"reports need {exc.name}, which is not installed: pip install 'onnx-bricks[report]'"
        ) from exc


# By the keys of targets and the digests of models.
ShownEstimates = Mapping[str, Mapping[str, ShownEstimate]]


def render(
    summary: CacheSummary, *, version: str, made: str, shown: ShownEstimates | None = None
) -> str:
    """The page; ``version`` is that of this package, ``made`` the time of its creation.

    ``shown`` has commands that narrow wide intervals; without it, the page shows only their width.
    """
    from bricks.report import charts

    labels = [target_label(view.target) for view in summary.targets]
    specs = {
        "normalised": charts.normalised(),
        "estimates": charts.estimates(),
        "against": charts.against(),
        "errors": charts.errors(),
        "similarity": [charts.similarity(len(view.models)) for view in summary.targets],
        "costly": charts.costly(),
        "systems": charts.systems(),
        "breakdown": charts.breakdown(),
        "timeline": charts.timeline(),
        "roofline": charts.roofline(),
    }
    return render_page(
        "report",
        summary=summary,
        labels=labels,
        choices=_choices(choices(summary)),
        targets=[_target(view, (shown or {}).get(view.target.key, {})) for view in summary.targets],
        version=version,
        made=made,
        data=in_script(page_data(summary, labels)),
        specs=in_script(specs),
        script=(_TEMPLATES / "report.js").read_text(encoding="utf-8"),
    )


def render_page(name: str, **values: Any) -> str:
    """The page of the template called ``name``; undefined values are errors."""
    return environment(_TEMPLATES).get_template(f"{name}.html.jinja").render(**values)


def environment(folder: Path) -> jinja2.Environment:
    """The templates in ``folder``: values are escaped; the filters format quantities."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {"library": library, "style": style}
    templates.filters |= {
        "seconds": seconds,
        "size": size,
        "percent": percent,
        "printable": printable,
        "giga": billions,
        "millions": _millions,
    }
    return templates


def style() -> str:
    """The style sheet of all pages."""
    return (_TEMPLATES / "report.css").read_text(encoding="utf-8")


def target_label(target: Target) -> str:
    """The label of a target, if there are several."""
    level = target.runtime.optimization
    return target_text(target) + ("" if level == "all" else f", optimisation {printable(level)}")


def _choices(choices: Sequence[RuntimeChoice]) -> list[dict[str, Any]]:
    """The template's variables of models in several runtimes; systems only if several."""
    systems = [choice.system for choice in choices if choice.system is not None]
    labels = labels_of({system.key: system.name for system in systems})
    return [
        {
            "choice": choice,
            "system": labels[choice.system.key] if choice.system and len(labels) > 1 else None,
            "risk": "–" if choice.risk is None else risk_text(choice.risk),
            "losses": [loss_text(answer.losses) for answer in choice.answers],
        }
        for choice in choices
    ]


def _target(view: TargetView, shown: Mapping[str, ShownEstimate]) -> dict[str, Any]:
    """The template's variables for a target, besides the view itself."""
    return {
        "view": view,
        "label": target_label(view.target),
        "facts": {
            "processor": view.target.system.identity.get("cpu") or "not known",
            "runtime": f"{view.target.runtime.backend} {view.target.runtime.version}",
            "threads": view.target.runtime.threads,
            "system": f"{view.target.system.name} ({view.target.system.key})",
            "target": view.target.key,
        },
        "models": [_model(model, shown.get(model.plan.digest)) for model in view.models],
        "wide": wide_lines([shown[m.plan.digest] for m in view.models if m.plan.digest in shown]),
        "costly": view.costly[:_MAX_COSTLY],
        "left": max(0, len(view.costly) - _MAX_COSTLY),
        "occurrences": sum(len(model.plan.occurrences) for model in view.models),
        "estimated": sum(model.estimate is not None for model in view.models),
        "ran": view.summary.models,
    }


def _model(model: ModelView, shown: ShownEstimate | None) -> dict[str, Any]:
    explanation, plan = model.explanation, model.plan
    estimate = explanation.estimate
    gaps = estimate.gaps if isinstance(estimate, IncompleteEstimate) else ()
    lost_s = sum(part.lost_s for part in explanation.parts)
    return {
        "view": model,
        **_memory(explanation.memory),
        "estimate": model.estimate,
        "phases": [] if model.estimate is None else phase_lines(plan.model, model.estimate.phases),
        "unique": len(plan.keys) / len(plan.occurrences) if plan.occurrences else None,
        "shares": astuple(model.estimate.provenance) if model.estimate else (None,) * 3,
        "gaps": gaps,
        "advice": None if shown is None else advice(shown),
        "lost_s": lost_s,
        "losers": [part for part in sorted(explanation.parts, key=lambda p: -p.lost_s)[:8]
                   if part.lost_s],
        "arithmetic": any(part.flops for part in explanation.parts),
    }  # fmt: skip


def _memory(memory: PeakMemory | UnknownMemory) -> dict[str, Any]:
    """The peak memory as text, its parts, and the unknown parts or the reason without a peak."""
    if isinstance(memory, UnknownMemory):
        return {"peak": "–", "peak_parts": None, "no_peak": memory.reason}
    peak = peak_size(memory.peak_bytes, memory.unknown)
    parts = peak_parts(asdict(memory))
    return {"peak": peak, "peak_parts": parts, "peak_lacks": "; ".join(memory.unknown)}


@cache
def library() -> str:
    """Vega, Vega-Lite and the embedding library, as one script."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
    return script.replace("</script", "<\\/script")


def in_script(data: Mapping[str, Any]) -> str:
    """``data`` as JSON for a script element, with all tags escaped."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _millions(value: float) -> str:
    return f"{value / 1e6:.3g}"
