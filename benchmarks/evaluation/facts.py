"""The numbers on the page, as texts by name.

Names of facts:

- of the run: ``date``, ``system``, ``processor``, ``threads``, ``batch``, ``rule``, ``wall``,
  ``disturbed``, ``runtimes``, ``models``, ``tasks``, ``frameworks``;
- of layers: ``layers``, ``unique_layers``, ``unique_share``, ``repeats``, ``shape_only``,
  ``most_repeated`` (operators), ``least_unique`` and ``most_unique`` (a model, its layers, its
  share), ``most_similar`` (pairs of models), ``within_families`` (mean similarity)
  and ``between_families``;
- of the paper: ``paper_layers``, ``paper_unique_layers``, ``paper_unique_share``, …;
- of a runtime, behind its name (``mxnet-unfused_``, ``onnxruntime_``): ``version``, ``best`` (the
  number of layers whose geometric mean is nearest to 1), ``best_geomean``, ``best_error``,
  ``best_within5``; and of a granularity, in front of it (``mxnet_error_executed``):
  ``geomean``, ``low``, ``high``, ``error``, ``within5``, ``worst``, ``speedup``, ``bricks``,
  ``count``, ``trained_speedup`` (each network as often as the paper's authors run trained models
  of it, where ``speedup`` counts it once);
- of those trained models: ``trained_models``, ``trained_networks``, ``trained_layers``,
  ``trained_unique_layers``, ``trained_unique_share``; ``trained_heaviest`` (the network that takes
  most of their time on the first runtime), ``trained_heaviest_count``, ``trained_heaviest_share``;
  ``listed_models`` (all that the authors run), ``absent`` (names of those without a network
  here), ``relatives`` (networks that are only relatives of the trained models).

A fact of a runtime that was not measured has a text that says so; an unknown name is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.evaluation import published
from benchmarks.evaluation.figures import TITLES, title_of
from benchmarks.evaluation.layers import grid
from benchmarks.evaluation.results import Results, ResultsError, Row

NOT_MEASURED = "(not measured)"

FRAMEWORKS = {"mxnet": "MXNet", "pytorch": "PyTorch", "caffe2": "Caffe2"}

_RUNTIMES = "|".join(TITLES)

_OF_RUNTIMES = (
    r"(version|best|best_geomean|best_error|best_within5"
    r"|(geomean|low|high|error|within5|worst|(trained_)?speedup|bricks|count)_(\d+|executed))"
)


class Facts(dict[str, str]):
    """Texts by name; facts not measured say so, unknown names are refused."""

    def __missing__(self, name: str) -> str:
        if re.fullmatch(rf"({_RUNTIMES})_{_OF_RUNTIMES}", name):
            return NOT_MEASURED
        raise ResultsError(f"the template names {{{name}}}, which is no fact: facts.py lists them")


def facts_of(results: Results) -> Facts:
    """All facts of the page."""
    return Facts(
        of_the_run(results) | of_layers(results) | of_trained(results) | of_the_paper()
        | of_runtimes(results)
    )  # fmt: skip


def of_the_run(results: Results) -> dict[str, str]:
    """The date, system, settings and models of the run."""
    protocol, identity = results.protocol, results.system["identity"]
    versions = {title_of(name): about["version"] for name, about in results.runtimes.items()}
    threads = protocol["threads"]
    frameworks = {model.framework for model in results.models}
    return {
        "date": results.date,
        "system": results.system["name"],
        "processor": f"{identity['cpu']}, {identity['physical_cores']} cores,"
        f" {identity['memory_gib']} GiB of memory",
        "threads": f"{threads} thread{'' if threads == 1 else 's'}",
        "batch": f"batch {protocol['batch']}",
        "rule": f"{protocol['min_rounds']} to {protocol['max_rounds']} rounds, until the model and"
        f" the sum of its bricks are known to ± {percent(protocol['precision'], 0)}",
        "wall": f"{results.wall_s / 60:.0f} min",
        "disturbed": f"{results.disturbed:,} of {results.rounds:,}",
        "runtimes": " and ".join(f"{name} {version}" for name, version in versions.items()),
        "models": f"{len(results.models)}",
        "tasks": f"{len(results.tasks)} task{'' if len(results.tasks) == 1 else 's'}",
        "frameworks": ", ".join(sorted({FRAMEWORKS.get(f, f) for f in frameworks})),
    }  # fmt: skip


def of_layers(results: Results) -> dict[str, str]:
    """How layers repeat."""
    layers = results.layers
    names = [model.name for model in results.models if model.name in layers.models]
    names_of = (
        "layers", "unique_layers", "unique_share", "repeats", "shape_only", "most_repeated",
        "least_unique", "most_unique", "most_similar", "within_families", "between_families",
    )  # fmt: skip
    if not names:
        return dict.fromkeys(names_of, NOT_MEASURED)
    family = {model.name: model.family for model in results.models}
    values = grid(layers, names)
    pairs = [
        (values[i][j], names[i], names[j]) for i in range(len(names)) for j in range(i)
    ]  # fmt: skip
    within = [value for value, one, other in pairs if family[one] == family[other]]
    between = [value for value, one, other in pairs if family[one] != family[other]]
    most_similar = sorted(pairs, key=lambda pair: (-pair[0], pair[1:]))[:3]
    repeated = layers.repeated_types(names)
    ranked = sorted(repeated, key=lambda kind: (-repeated[kind], kind))[:4]
    ordered = sorted(names, key=layers.unique_share)

    def share_of(name: str) -> str:
        count = len(layers.models[name])
        return f"{name} ({count:,} layers, {percent(layers.unique_share(name))})"

    return {
        "layers": f"{layers.total:,}",
        "unique_layers": f"{layers.unique:,}",
        "unique_share": percent(layers.unique / layers.total),
        "repeats": f"{repeated.total():,}",
        "shape_only": f"{layers.shape_only:,}",
        "most_repeated": ", ".join(
            f"{kind} ({percent(repeated[kind] / repeated.total(), 0)})" for kind in ranked
        ),
        "least_unique": share_of(ordered[0]),
        "most_unique": share_of(ordered[-1]),
        "most_similar": ", ".join(
            f"{other} and {one} ({value:.2f})" for value, one, other in most_similar
        )
        or "none",
        "within_families": _mean(within),
        "between_families": _mean(between),
    }


def of_trained(results: Results) -> dict[str, str]:
    """The trained models of the paper's authors, and how their layers repeat."""
    layers = results.layers.models
    known = {name: len(of) for name, of in published.TRAINED.items() if name in layers}
    total = sum(times * len(layers[name]) for name, times in known.items())
    unique = len({layer for name in known for layer in layers[name]})
    counted = sum(map(len, published.TRAINED.values()))
    heaviest, share = _heaviest(results)
    return {
        "trained_models": f"{sum(known.values())}",
        "trained_networks": f"{len(known)}",
        "trained_layers": f"{total:,}",
        "trained_unique_layers": f"{unique:,}",
        "trained_unique_share": percent(unique / total) if total else NOT_MEASURED,
        "listed_models": f"{counted + len(published.ABSENT)}",
        "trained_heaviest": heaviest,
        "trained_heaviest_count": f"{len(published.TRAINED.get(heaviest, ()))}",
        "trained_heaviest_share": share,
        "absent": "; ".join(published.ABSENT),
        "relatives": ", ".join(name for name in known if name in published.RELATIVES) or "none",
    }


def _heaviest(results: Results) -> tuple[str, str]:
    """The network whose trained models take most time on the first runtime, and their share."""
    if not results.runtimes or not results.cuts:
        return NOT_MEASURED, NOT_MEASURED
    runtime, cut = next(iter(results.runtimes)), results.cuts[0]
    rows = ((name, results.rows.get((name, runtime, cut))) for name in published.TRAINED)
    times_s = {
        name: len(published.TRAINED[name]) * row.measured_s[0]
        for name, row in rows
        if isinstance(row, Row)
    }
    if not times_s:
        return NOT_MEASURED, NOT_MEASURED
    heaviest = max(times_s, key=times_s.__getitem__)
    return heaviest, percent(times_s[heaviest] / sum(times_s.values()), 0)


def of_the_paper() -> dict[str, str]:
    """The results of the paper."""
    return {
        "paper_models": f"{published.MODELS}",
        "paper_tasks": f"{published.TASKS}",
        "paper_layers": f"{published.LAYERS:,}",
        "paper_unique_layers": f"{published.UNIQUE_LAYERS:,}",
        "paper_unique_share": percent(published.UNIQUE_LAYERS / published.LAYERS),
        "paper_least_unique_share": percent(published.LEAST_UNIQUE_SHARE),
        "paper_least_unique_layers": f"{published.LEAST_UNIQUE_LAYERS:,}",
        "paper_system": published.STATED_SYSTEM,
        "paper_geomean_1": f"{published.STATED_GEOMEAN:.3f}",
        "paper_drawn_geomean_1": f"{published.GEOMEANS[published.STATED_SYSTEM][0]:.3f}",
        "paper_low_1": f"{published.STATED_LOW:.3f}",
        "paper_high_1": f"{published.STATED_HIGH:.3f}",
        "paper_span_1": span(1),
        "paper_error_1": percent(published.MEAN_ERRORS[0]),
        "paper_best": f"{published.BEST_GRANULARITY}",
        "paper_best_error": percent(published.MEAN_ERRORS[published.BEST_GRANULARITY - 1]),
        "paper_best_within5": f"{published.BEST_WITHIN}",
        "paper_speedup_1": f"{published.SPEEDUPS[0]:.2f}",
        "paper_speedup_10": f"{published.SPEEDUPS[-1]:.2f}",
        "paper_speedup_system": published.SPEEDUP_SYSTEM,
    }


def of_runtimes(results: Results) -> dict[str, str]:
    """Errors and cost of estimates, by runtime."""
    facts: dict[str, str] = {}
    for runtime, about in results.runtimes.items():
        facts[f"{runtime}_version"] = str(about["version"])
        best = results.best(runtime)
        if best is not None:
            facts[f"{runtime}_best"] = f"{best}"
            facts[f"{runtime}_best_geomean"] = number(results.geomean(runtime, best))
            facts[f"{runtime}_best_error"] = percent(results.mean_error(runtime, best))
            facts[f"{runtime}_best_within5"] = f"{results.within(runtime, best, 0.05)}"
        for cut in results.granularities:
            ratios = results.ratios(runtime, cut)
            if not ratios:
                continue
            worst = max(ratios, key=lambda name: abs(ratios[name] - 1))
            texts = {
                "count": f"{len(ratios)}",
                "geomean": number(results.geomean(runtime, cut)),
                "low": number(min(ratios.values())),
                "high": number(max(ratios.values())),
                "error": percent(results.mean_error(runtime, cut)),
                "within5": f"{results.within(runtime, cut, 0.05)}",
                "worst": f"{worst} ({number(ratios[worst])})",
            }
            totals = results.totals.get((runtime, cut))
            if totals is not None and totals.speedup is not None:
                texts |= {"bricks": f"{totals.bricks:,}", "speedup": f"{totals.speedup:.2f}"}
            if (trained := results.trained_speedup(runtime, cut)) is not None:
                texts["trained_speedup"] = f"{trained:.2f}"
            facts |= {f"{runtime}_{name}_{cut}": text for name, text in texts.items()}
    return facts


def span(granularity: int) -> str:
    """The paper's geometric means over its systems."""
    if not 1 <= granularity <= 10:
        return "–"
    means = [of[granularity - 1] for of in published.GEOMEANS.values()]
    return f"{min(means):.3f} … {max(means):.3f}"


def number(value: float | None) -> str:
    """A ratio to three digits."""
    return NOT_MEASURED if value is None else f"{value:.3f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent."""
    return NOT_MEASURED if value is None else f"{100 * value:.{digits}f} %"


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "– (there is none)"
