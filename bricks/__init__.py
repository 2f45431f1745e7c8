"""How fast will this model run on that machine? Composable benchmarks for ONNX models.

A model is decomposed into *bricks*, unique runnable subnetworks; each brick is measured once per
system and runtime; the latency of whole models is recomposed from what was measured.

    import bricks

    with bricks.Bench(cache="cache", threads=1) as bench:
        model = bench.read("resnet50")
        decomposition = bench.decompose(model)
        bench.measure([model])
        estimate = bench.predict(model)
        comparison = bench.compare([model])

Names are loaded when they are first used: importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bricks.bench import Bench
    from bricks.contrast import Contrast, side_by_side
    from bricks.decompose.plan import Brick, Decomposition, Occurrence, Plan
    from bricks.errors import (
        BackendError,
        BricksError,
        ModelError,
        ShapeError,
        StoreError,
        SuiteError,
        UsageError,
        WorkerError,
    )
    from bricks.estimate.advice import PROMISE, per_million, risk
    from bricks.estimate.comparison import Compared, NotCompared, Summary
    from bricks.estimate.cost import Cost, CostModel
    from bricks.estimate.coverage import Coverage, Covered, ZooCoverage
    from bricks.estimate.difference import Difference
    from bricks.estimate.estimate import Estimate, Gap, IncompleteEstimate, Share
    from bricks.estimate.explanation import Explanation, Part, Peaks
    from bricks.estimate.schedule import Place, Rule, anything, not_two_of
    from bricks.estimate.similarity import Similarity, similarity
    from bricks.graph.model import Model
    from bricks.graph.read import read_model
    from bricks.insight import explain
    from bricks.measure.campaign import Conditions
    from bricks.measure.measurement import Failure, Measurement
    from bricks.measure.rounds import StopRule
    from bricks.options import Options
    from bricks.results import Comparison, Measured, Probed
    from bricks.store.exchange import Merged
    from bricks.store.store import Store
    from bricks.suite import Suite, read_suite, write_suite
    from bricks.survey import coverage, decompose_all
    from bricks.system.target import Runtime, System, Target

__version__ = "0.1.0"

_ORIGIN = {
    "bricks.bench": ("Bench",),
    "bricks.contrast": ("Contrast", "side_by_side"),
    "bricks.decompose.plan": ("Brick", "Decomposition", "Occurrence", "Plan"),
    "bricks.errors": (
        "BackendError", "BricksError", "ModelError", "ShapeError", "StoreError", "SuiteError",
        "UsageError", "WorkerError",
    ),
    "bricks.estimate.advice": ("PROMISE", "per_million", "risk"),
    "bricks.estimate.comparison": ("Compared", "NotCompared", "Summary"),
    "bricks.estimate.cost": ("Cost", "CostModel"),
    "bricks.estimate.coverage": ("Coverage", "Covered", "ZooCoverage"),
    "bricks.estimate.difference": ("Difference",),
    "bricks.estimate.estimate": ("Estimate", "Gap", "IncompleteEstimate", "Share"),
    "bricks.estimate.explanation": ("Explanation", "Part", "Peaks"),
    "bricks.estimate.schedule": ("Place", "Rule", "anything", "not_two_of"),
    "bricks.estimate.similarity": ("Similarity", "similarity"),
    "bricks.graph.model": ("Model",),
    "bricks.graph.read": ("read_model",),
    "bricks.insight": ("explain",),
    "bricks.measure.campaign": ("Conditions",),
    "bricks.measure.measurement": ("Failure", "Measurement"),
    "bricks.measure.rounds": ("StopRule",),
    "bricks.options": ("Options",),
    "bricks.results": ("Comparison", "Measured", "Probed"),
    "bricks.store.exchange": ("Merged",),
    "bricks.store.store": ("Store",),
    "bricks.suite": ("Suite", "read_suite", "write_suite"),
    "bricks.survey": ("coverage", "decompose_all"),
    "bricks.system.target": ("Runtime", "System", "Target"),
}  # fmt: skip
_MODULES = {name: module for module, names in _ORIGIN.items() for name in names}

__all__ = [
    "PROMISE", "BackendError", "Bench", "Brick", "BricksError", "Compared", "Comparison",
    "Conditions", "Contrast", "Cost", "CostModel", "Coverage", "Covered", "Decomposition",
    "Difference", "Estimate", "Explanation", "Failure", "Gap", "IncompleteEstimate", "Measured",
    "Measurement", "Merged", "Model", "ModelError", "NotCompared", "Occurrence", "Options", "Part",
    "Peaks", "Place", "Plan", "Probed", "Rule", "Runtime", "ShapeError", "Share", "Similarity",
    "StopRule", "Store", "StoreError", "Suite", "SuiteError", "Summary", "System", "Target",
    "UsageError", "WorkerError", "ZooCoverage", "anything", "coverage", "decompose_all", "explain",
    "not_two_of", "per_million", "read_model", "read_suite", "risk", "side_by_side", "similarity",
    "write_suite",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'bricks' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
