"""Made-up results of the paper's evaluation."""

from __future__ import annotations

from benchmarks.evaluation.layers import Layers
from benchmarks.evaluation.results import EXECUTED, ModelFacts, Results, Row, Totals

CUTS = ("1", "2", "10", EXECUTED)


def facts(name: str, task: str = "image classification", family: str = "A") -> ModelFacts:
    return ModelFacts(name, task, family, "mxnet", "1×3×224×224", 1_000_000)


def row(ratio: float, measured_s: float = 10e-3) -> Row:
    estimate_s = measured_s * ratio
    return Row(
        (measured_s, 0.99 * measured_s, 1.01 * measured_s),
        (estimate_s, 0.98 * estimate_s, 1.02 * estimate_s),
        20,
        10,
    )


def evaluated(
    models: int = 3, runtimes: tuple[str, ...] = ("mxnet-unfused", "onnxruntime")
) -> Results:
    """Model ``i`` has layers ``0 … i + 1``, each twice; ratios are 0.8 and 1.25 in turn."""
    every = tuple(
        facts(f"gluon_model{i}_of_fifty", f"task {i % 5}", f"family {i // 3}")
        for i in range(models)
    )
    kinds = ("Conv", "Relu", "BatchNormalization", "Add", "Flatten")
    return Results(
        date="2020-04-20",
        quick=False,
        system={"name": "a-host", "identity": {"cpu": "A", "physical_cores": 2, "memory_gib": 8}},
        runtimes={name: {"version": "1.2.3", "provider": "CPU"} for name in runtimes},
        protocol={
            "threads": 1, "batch": 1, "precision": 0.03, "min_rounds": 4, "max_rounds": 12,
            "passes": 1,
        },
        granularities=CUTS,
        models=every,
        layers=Layers(
            tuple(kinds[i % len(kinds)] for i in range(models + 1)),
            {model.name: tuple(range(i + 2)) * 2 for i, model in enumerate(every)},
        ),
        rows={
            (model.name, runtime, cut): row(1.0 if cut == EXECUTED else (0.8, 1.25)[i % 2])
            for i, model in enumerate(every)
            for runtime in runtimes
            for cut in CUTS
        },
        totals={(runtime, cut): Totals(models, 0.44, 7, 0.1) for runtime in runtimes
                for cut in CUTS},
        trained={(runtime, cut): Totals(2 * models, 0.88, 7, 0.1) for runtime in runtimes
                 for cut in CUTS},
        rounds=100,
        disturbed=3,
        wall_s=120.0,
    )  # fmt: skip
