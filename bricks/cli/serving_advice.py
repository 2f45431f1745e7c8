"""``bricks advise --scenario server``: what serves a model at a rate, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bricks.cli.known import refuse_missing
from bricks.cli.options import Surveying, given_values, open_bench
from bricks.cli.output import finish, print_json, show
from bricks.cli.predict import PROVENANCE
from bricks.cli.systems import known_targets
from bricks.errors import UsageError
from bricks.units.quantities import seconds_of

if TYPE_CHECKING:
    from bricks.compose.estimate import Provenance
    from bricks.studies.serving.advise import NoServingAdvice, ServingAdvice

_LARGEST_BATCH = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of the command about serving, as they were typed."""

    scenario: str
    slo: str
    qps: float | None
    percentile: float | None
    batching: int | None


def advise_server(
    options: Surveying, systems: Sequence[str], wanted: Wanted, batches: str | None
) -> None:
    """Print how each known target serves the models that ``options`` name."""
    from bricks.graph.sizes import parse_shape
    from bricks.studies.serving.advise import advise_serving
    from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad

    if wanted.scenario != ScenarioKind.SERVER:
        raise UsageError(f"there is advice for --scenario server, not {wanted.scenario!r}")
    if wanted.qps is None:
        raise UsageError("a server is asked at a rate: add --qps N")
    if not options.models:
        raise UsageError("advice for a server is for models that are named: name one")
    if batches is not None or options.batch is not None:
        raise UsageError("a server makes batches itself: give --batching N in place of --batch")
    slo_s = seconds_of("--slo", wanted.slo)
    load = ScenarioLoad(ScenarioKind.SERVER, wanted.qps, slo_s=slo_s, percentile=wanted.percentile)
    refuse_missing(options.cache)
    with open_bench(options) as bench:
        targets = list(known_targets(bench.workspace, systems))
        rows = [
            _row(name, advice)
            for name in options.models
            for advice in advise_serving(
                bench,
                name,
                load,
                targets,
                largest_batch=wanted.batching or _LARGEST_BATCH,
                shapes=dict(map(parse_shape, options.shape or [])),
                values=given_values(options),
            )
        ]
    rows.sort(key=_order)
    facts = {
        "scenario": wanted.scenario,
        "qps": load.qps,
        "slo_s": slo_s,
        "percentile": load.counted_percentile,
        "answers": rows,
    }
    if options.json:
        print_json(facts)
    elif any(row["error"] is None for row in rows):
        from bricks.report.scenario import serving_advice_parts

        show(*serving_advice_parts(facts))
    finish(row["error"] for row in rows if row["error"] is not None)


_FIGURES = ("counted_s", "max_qps")


def _row(name: str, advice: ServingAdvice | NoServingAdvice) -> dict[str, Any]:
    """The facts of a model on a target; ``counted_s`` and ``max_qps`` are those of one host."""
    from bricks.cli.scenario_facts import ends
    from bricks.studies.serving.advise import NoServingAdvice

    target = advice.target
    row: dict[str, Any] = {
        "model": name,
        "system": target.system.name,
        "system_key": target.system.key,
        "threads": target.runtime.threads,
        "runtime_version": target.runtime.version,
        **dict.fromkeys(("instances", "max_batch", "hosts", "keeps")),
        **{key: None for figure in _FIGURES for key in ends(figure, None)},
        **dict.fromkeys(("utilisation", *PROVENANCE, "cost_per_hour", "cost_per_million")),
        "error": None,
    }
    if isinstance(advice, NoServingAdvice):
        return {**row, "error": f"{name} on {target.system.name}: {advice.error}"}
    result, cost = advice.result, advice.cost_per_hour
    if result is None:
        return {**row, "keeps": False}
    assert advice.hosts is not None
    assert result.load.qps is not None
    served_per_hour = 3600 * advice.hosts * result.load.qps
    return {
        **row,
        "instances": result.serving.instances,
        "max_batch": result.serving.max_batch,
        "hosts": advice.hosts,
        "keeps": True,
        **ends("counted_s", result.latencies.get("counted_s")),
        **ends("max_qps", result.max_qps),
        "utilisation": result.utilisation.value,
        **asdict(_least_known(batch.provenance for batch in result.times.batches)),
        "cost_per_hour": cost,
        "cost_per_million": None if cost is None else cost / served_per_hour * 1e6,
    }


def _least_known(provenances: Iterable[Provenance]) -> Provenance:
    """The one with the largest predicted share; of equals, that with the most of others."""
    return max(provenances, key=lambda each: (each.predicted_share, each.published_share))


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    """The best first: those that keep the bound, by cost if that is known, and by hosts."""
    cost = row["cost_per_hour"]
    return (
        row["model"],
        row["error"] is not None,
        not row["keeps"],
        cost is None,
        cost or 0.0,
        row["hosts"] or 0,
        row["counted_s"] or 0.0,
        row["system"],
        row["threads"],
    )
