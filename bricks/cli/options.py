"""Options of commands, and the values that they take, each with a description.

A dataclass for each group that several commands share; options of one command alone stand in its
module. Values stand here because importing the library that defines them would make help and
completion too slow; a test checks that they are the same. Must not know what a command does with
options, nor the effect of a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from bricks.cli.output import VerbosityOptions
from bricks.session.defaults import (
    CACHE,
    EFFORT,
    GRANULARITY,
    MAX_COPIES,
    MAX_THREADS,
    MAX_WORKERS,
    OPTIMIZATION,
    PRECISION,
    RUNTIME,
    TIMEOUT_S,
)
from bricks.studies.options import (
    argument,
    batch_option,
    option,
    shape_option,
    system_option,
    value_option,
)
from bricks.system.accelerator import CPU

GRANULARITIES = {
    "executed": "nodes of the graph that the runtime executes",
    "1": "single layers of the model",
    "2": "sequences of at most two layers",
    "1+1": "single layers, overlapping by one",
    "2+1": "sequences of at most two layers, overlapping by one",
}
OPTIMIZATIONS = {
    "all": "all that the runtime can do",
    "extended": "all but other layouts in memory",
    "basic": "what keeps to the operators of the model's graph",
    "none": "nothing",
}
DEVICES = {
    "cpu": "the processor",
    "cuda": "the first GPU of NVIDIA",
}
EFFORTS = {
    "full": "measure every brick",
    "balanced": "measure what matters most, predict the others",
    "quick": "measure less, predict more",
}
QUANTIZED = {
    "none": "the numbers that the model has",
    "int8": "8-bit integers, with scales of synthetic data",
}
COLLECTIVES = {
    "all-reduce": "the sum over all ranks, on each of them",
    "broadcast": "the tensor of the first rank, on each of them",
    "all-gather": "a part from each rank, on each of them",
    "reduce-scatter": "the sum over all ranks, a part on each of them",
}
LISTS = {
    "deepbench": "a selection of DeepBench's convolutions, matrix products and recurrent layers",
    "zoo": "the costliest bricks of the zoo on a system",
}
KEPT = {
    "plan": "the plan of an uploaded model",
    "model": "its plan, and the model without weights",
    "nothing": "nothing of it",
}


# Titles of groups in the help of a command; options without a title come first.
MODELS, RUNNING, MEASURING = "Models", "Runtime", "Measuring"


def _not_empty(text: str) -> str:
    if not text:
        raise typer.BadParameter("is empty: give a folder or a database URL")
    return text


def threads_option() -> Any:
    """The field of the number of threads; None: one for each physical core."""
    return option(
        "Threads of the runtime.",
        default=None, least=1, most=MAX_THREADS, metavar="N", shown="physical cores",
        group=RUNNING,
    )  # fmt: skip


def seed_option() -> Any:
    """The field of the seed of synthetic weights and inputs."""
    return option(
        "Decides weights and inputs of what is run; no part of a key.",
        default=0, least=0, metavar="N", group=MODELS,
    )  # fmt: skip


def granularity_option(group: str | None = RUNNING) -> Any:
    """The field of the granularity as text."""
    return option(
        "Bricks: nodes of the graph the runtime executes, or at most N source layers,"
        " with +1 overlapping by one.",
        default=GRANULARITY, metavar="executed|N|N+1", values=GRANULARITIES, group=group,
    )  # fmt: skip


def precision_option(help: str, default: float) -> Any:
    """The field of the relative precision up to which a latency is sampled."""
    return option(help, default=default, least=1e-4, most=1.0, metavar="SHARE", group=MEASURING)


def retry_option() -> Any:
    """The field of measuring failed bricks again."""
    return option("Measure again what failed before.", default=False, group=MEASURING)


def json_option() -> Any:
    """The field of printing facts as JSON."""
    return option("Print facts as JSON on standard output.", default=False)


def no_measure_option() -> Any:
    """The field of leaving missing bricks unmeasured."""
    return option("Use what the cache holds; predict what it lacks.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """The form in which facts are printed."""

    json: bool = json_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailOptions:
    """Whether an answer has all details."""

    every: bool = option("Show all details and remarks.", default=False, flag="--all")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLocation:
    """The cache that is read or written, a folder or a database URL."""

    cache: str = option(
        "Where measurements are kept.",
        default=CACHE, metavar="PATH_OR_URL", variable="BRICKS_CACHE", check=_not_empty,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions(CacheLocation):
    """The cache, and the form in which its facts are printed."""

    json: bool = json_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneralOptions(CacheOptions):
    """Options of all commands that open a workspace."""

    verbosity: VerbosityOptions = field(default_factory=VerbosityOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemOptions:
    """A known system by name or key; None: this host."""

    system: str | None = system_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions(SystemOptions):
    """A known system, and whether missing bricks are measured."""

    no_measure: bool = no_measure_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedModels:
    """The models of a command, and the shapes and values of their inputs."""

    words: list[str] = argument(
        "ONNX files, folders of them, names of zoo models, or suites (.zip).",
        metavar="MODEL…", values="models",
    )  # fmt: skip
    batch: int | None = batch_option()
    shape: list[str] | None = shape_option()
    value: list[str] | None = value_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(ShapedModels):
    """As :class:`ShapedModels`, with arrays for inputs and the seed of all others."""

    inputs: Path | None = option(
        "What inputs hold, as arrays by name: for models whose time depends on values.",
        default=None, metavar="FILE.npz", group=MODELS,
    )  # fmt: skip
    quantize: str = option(
        "Quantise the models first, with the tool of onnxruntime.",
        default="none", metavar="|".join(QUANTIZED), values=QUANTIZED, group=MODELS,
    )  # fmt: skip
    seed: int = seed_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedModels(ModelOptions):
    """As :class:`ModelOptions`; without words, all models of the zoo."""

    words: list[str] = argument(
        "ONNX files, folders of them, or names of zoo models.",
        default=(), metavar="MODEL…", values="models", shown="the whole zoo",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """The runtime of models, its threads, and how it optimises and cuts graphs."""

    name: str = option(
        "What runs the models: onnxruntime, openvino, mxnet, torch, fake, or one of yours.",
        default=RUNTIME, flag="--runtime", metavar="NAME", values="runtimes", group=RUNNING,
    )  # fmt: skip
    granularity: str = granularity_option()
    optimization: str = option(
        "What the runtime does to a graph before it runs.",
        default=OPTIMIZATION, metavar="|".join(OPTIMIZATIONS), values=OPTIMIZATIONS, group=RUNNING,
    )  # fmt: skip
    threads: int | None = threads_option()
    device: str = option(
        "What runs the models of a program: the processor, or the first GPU.",
        default=CPU, metavar="|".join(DEVICES), values=DEVICES, group=RUNNING,
    )  # fmt: skip
    python: str | None = option(
        "Your Python (3.9 or newer) that has the runtime and what programs import; 'bricks': the"
        " installed runtime.",
        default=None, metavar="PATH", group=RUNNING,
        shown="BRICKS_PYTHON, or an active environment with the runtime",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringOptions:
    """Which bricks are measured, how precisely, and for how many seconds."""

    budget_s: float | None = option(
        "Measure for this time, and predict what then lacks; the last round ends.",
        default=None, flag="--budget", least=0, metavar="SECONDS", group=MEASURING,
    )  # fmt: skip
    precision: float = precision_option(
        "Sample until the median is known this well (0.01: ±1 %).", PRECISION
    )
    effort: str = option(
        "Measure all bricks, or those that matter most and predict the others.",
        default=EFFORT, metavar="|".join(EFFORTS), values=EFFORTS, group=MEASURING,
    )  # fmt: skip
    timeout_s: float = option(
        "How long one brick may take to run.",
        default=TIMEOUT_S, flag="--timeout", least=1.0, metavar="SECONDS", group=MEASURING,
    )  # fmt: skip
    retry: bool = retry_option()
    again: bool = option(
        "Measure further rounds of what is measured already.", default=False, group=MEASURING
    )
    repeat_inputs: bool = option(
        "Run on the same inputs again and again, as loops do: processors learn them.",
        default=False, group=MEASURING,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOptions:
    """How many copies of a model run at the same time, and how many nodes of each."""

    copies: int = option(
        "Copies of the model that run at once on this host, each with --threads.",
        default=1, least=1, most=MAX_COPIES, metavar="N", group=RUNNING,
    )  # fmt: skip

    workers: int = option(
        "Nodes that are run at the same time, where they do not depend on each other.",
        default=1, least=1, most=MAX_WORKERS, metavar="N", group=RUNNING,
    )  # fmt: skip
    overlap_rule: str | None = option(
        "Python code that says which of them may be; see research/construction.md.",
        default=None, metavar="FILE.py:NAME|MODULE:NAME", group=RUNNING,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """Options of all commands that decompose models.

    ``measuring`` is None for a command that measures no bricks, ``parallel`` for one that estimates
    no latencies.
    """

    general: GeneralOptions
    models: ModelOptions
    runtime: RuntimeOptions
    measuring: MeasuringOptions | None = None
    parallel: ParallelOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyOptions(CommonOptions):
    """Options of commands about many models; without a model, about the whole zoo."""

    models: SurveyedModels


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions(CommonOptions):
    """Options of all commands that also measure."""

    measuring: MeasuringOptions = field(default_factory=MeasuringOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOptions(MeasureOptions):
    """Options of all commands that also estimate latencies of whole models."""

    parallel: ParallelOptions = field(default_factory=ParallelOptions)
