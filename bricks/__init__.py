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

from bricks._version import __version__ as __version__

if TYPE_CHECKING:
    from bricks.analysis.coverage import Coverage, Covered, ZooCoverage, coverage
    from bricks.analysis.difference import Difference
    from bricks.analysis.explain import explain
    from bricks.analysis.explanation import Explanation, Part
    from bricks.analysis.similarity import Similarity, similarity
    from bricks.analysis.target_diff import TargetDiff, diff_targets
    from bricks.api.bench import Bench
    from bricks.compose.estimate import Estimate, Gap, IncompleteEstimate, Share
    from bricks.compose.interval_width import wide_interval
    from bricks.compose.memory.peak import PeakMemory, UnknownMemory
    from bricks.compose.schedule import Place, Rule, anything, not_two_of
    from bricks.compose.slo import PROMISE, per_million, risk
    from bricks.decompose.occurrence import Occurrence
    from bricks.decompose.plan import Brick, Decomposition, Plan
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
    from bricks.graph.model import Model
    from bricks.measure.conditions import Conditions, StopRule
    from bricks.predict.cost import CostModel
    from bricks.reading.read import read_model
    from bricks.report.plots import (
        Plot,
        plot_comparison,
        plot_curves,
        plot_estimates,
        plot_operators,
        plot_points,
    )
    from bricks.samples.measurement import Failure, Measurement
    from bricks.samples.whole_models import MemoryPeaks
    from bricks.session.batch import decompose_all
    from bricks.session.machine_peaks import Peaks
    from bricks.session.measuring import Measured, Probed
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace
    from bricks.store.merge import Merged
    from bricks.store.store import Store
    from bricks.studies.generation.options import Generation, GenerationOptions, LlmOptions
    from bricks.studies.generation.result import GenerationResult, LlmResult
    from bricks.studies.generation.study import predict_generation, predict_llm
    from bricks.studies.inference.result import (
        Comparison,
        ComparisonFailure,
        ModelComparison,
        Summary,
    )
    from bricks.studies.scaling.options import ScalingOptions
    from bricks.studies.scaling.result import (
        ScaleFailure,
        ScalePoint,
        ScaleResult,
        ScalingResult,
    )
    from bricks.studies.scaling.scaling import DataParallelTraining
    from bricks.studies.scaling.study import scale_training
    from bricks.studies.serving.options import ScenarioOptions
    from bricks.studies.serving.result import ScenarioResult
    from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
    from bricks.studies.serving.study import predict_scenario
    from bricks.studies.training.options import TrainingOptions
    from bricks.studies.training.result import (
        TrainingFailure,
        TrainingPrediction,
        TrainingResult,
        TrainingRun,
    )
    from bricks.studies.training.study import train
    from bricks.studies.training.validation import TrainingValidation, validate_training
    from bricks.suite import Suite, read_suite, write_suite
    from bricks.system.target import Runtime, System, Target
    from bricks.units.interval import Interval

_ORIGIN = {
    "bricks.analysis.coverage": ("Coverage", "Covered", "ZooCoverage", "coverage"),
    "bricks.analysis.difference": ("Difference",),
    "bricks.analysis.explain": ("explain",),
    "bricks.analysis.explanation": ("Explanation", "Part"),
    "bricks.analysis.similarity": ("Similarity", "similarity"),
    "bricks.analysis.target_diff": ("TargetDiff", "diff_targets"),
    "bricks.decompose.occurrence": ("Occurrence",),
    "bricks.decompose.plan": ("Brick", "Decomposition", "Plan"),
    "bricks.errors": (
        "BackendError", "BricksError", "ModelError", "ShapeError", "StoreError", "SuiteError",
        "UsageError", "WorkerError",
    ),
    "bricks.compose.slo": ("PROMISE", "per_million", "risk"),
    "bricks.studies.inference.result": (
        "Comparison", "ComparisonFailure", "ModelComparison", "Summary",
    ),
    "bricks.compose.estimate": ("Estimate", "Gap", "IncompleteEstimate", "Share"),
    "bricks.compose.memory.peak": ("PeakMemory", "UnknownMemory"),
    "bricks.compose.schedule": ("Place", "Rule", "anything", "not_two_of"),
    "bricks.compose.interval_width": ("wide_interval",),
    "bricks.graph.model": ("Model",),
    "bricks.reading.read": ("read_model",),
    "bricks.measure.conditions": ("Conditions", "StopRule"),
    "bricks.predict.cost": ("CostModel",),
    "bricks.report.plots": (
        "Plot", "plot_comparison", "plot_curves", "plot_estimates", "plot_operators", "plot_points",
    ),
    "bricks.samples.measurement": ("Failure", "Measurement"),
    "bricks.samples.whole_models": ("MemoryPeaks",),
    "bricks.studies.scaling.options": ("ScalingOptions",),
    "bricks.studies.scaling.result": (
        "ScaleFailure", "ScalePoint", "ScaleResult", "ScalingResult",
    ),
    "bricks.studies.scaling.scaling": ("DataParallelTraining",),
    "bricks.studies.scaling.study": ("scale_training",),
    "bricks.studies.generation.study": ("predict_generation", "predict_llm"),
    "bricks.studies.generation.options": ("Generation", "GenerationOptions", "LlmOptions"),
    "bricks.studies.generation.result": ("GenerationResult", "LlmResult"),
    "bricks.studies.serving.study": ("predict_scenario",),
    "bricks.studies.serving.options": ("ScenarioOptions",),
    "bricks.studies.serving.result": ("ScenarioResult",),
    "bricks.studies.serving.scenario": ("ScenarioKind", "ScenarioLoad", "Serving"),
    "bricks.api.bench": ("Bench",),
    "bricks.session.batch": ("decompose_all",),
    "bricks.session.machine_peaks": ("Peaks",),
    "bricks.session.options": ("Options",),
    "bricks.session.measuring": ("Measured", "Probed"),
    "bricks.session.workspace": ("Workspace",),
    "bricks.store.merge": ("Merged",),
    "bricks.store.store": ("Store",),
    "bricks.suite": ("Suite", "read_suite", "write_suite"),
    "bricks.system.target": ("Runtime", "System", "Target"),
    "bricks.studies.training.result": (
        "TrainingFailure", "TrainingPrediction", "TrainingResult", "TrainingRun",
    ),
    "bricks.studies.training.options": ("TrainingOptions",),
    "bricks.studies.training.study": ("train",),
    "bricks.studies.training.validation": ("TrainingValidation", "validate_training"),
    "bricks.units.interval": ("Interval",),
}  # fmt: skip
_MODULES = {name: module for module, names in _ORIGIN.items() for name in names}

__all__ = [
    "PROMISE", "BackendError", "Bench", "Brick", "BricksError", "Comparison", "ComparisonFailure",
    "Conditions", "CostModel", "Coverage", "Covered", "DataParallelTraining", "Decomposition",
    "Difference", "Estimate", "Explanation", "Failure", "Gap", "Generation", "GenerationOptions",
    "GenerationResult", "IncompleteEstimate", "Interval", "LlmOptions", "LlmResult", "Measured",
    "Measurement", "MemoryPeaks", "Merged", "Model", "ModelComparison", "ModelError", "Occurrence",
    "Options", "Part", "PeakMemory", "Peaks", "Place", "Plan", "Plot", "Probed", "Rule", "Runtime",
    "ScaleFailure", "ScalePoint", "ScaleResult", "ScalingOptions", "ScalingResult", "ScenarioKind",
    "ScenarioLoad", "ScenarioOptions", "ScenarioResult", "Serving", "ShapeError", "Share",
    "Similarity", "StopRule", "Store", "StoreError", "Suite", "SuiteError", "Summary", "System",
    "Target", "TargetDiff", "TrainingFailure", "TrainingOptions", "TrainingPrediction",
    "TrainingResult", "TrainingRun", "TrainingValidation", "UnknownMemory", "UsageError",
    "WorkerError", "Workspace", "ZooCoverage", "anything", "coverage", "decompose_all",
    "diff_targets", "explain", "not_two_of", "per_million", "plot_comparison", "plot_curves",
    "plot_estimates", "plot_operators", "plot_points", "predict_generation", "predict_llm",
    "predict_scenario", "read_model", "read_suite", "risk", "scale_training", "similarity", "train",
    "validate_training", "wide_interval", "write_suite",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'bricks' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
