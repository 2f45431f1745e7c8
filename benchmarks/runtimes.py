"""The zoo in several runtimes: which is fastest, and whether estimates name it.

    .venv/bin/python -m benchmarks runtimes

All models run as they are, with one and two threads; some of several families also with numbers of
another form: int8 and float16 are made by ONNX Runtime's own tools, with synthetic weights;
bfloat16 is how OpenVINO computes by itself where the processor can. Every model is compared in
every runtime before the next model, each time in an empty cache. Run nothing else meanwhile.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime import quantization
from onnxruntime.transformers import float16

from benchmarks import summary
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, microseconds
from benchmarks.study import Benchmark, Failed, Results, Run
from bricks import BricksError, ModelComparison
from bricks.graph.payload import is_referenced
from bricks.graph.synthesis import Pool
from bricks.graph.types import TensorType
from bricks.report.tables import number, percent
from bricks.zoo import entries, entry

RUNTIMES = ("onnxruntime", "openvino", "openvino-bf16", "mxnet")
ONNX, OPENVINO, BFLOAT16, MXNET = RUNTIMES
# Runtimes by the form of a model's numbers.
FORMS = {
    "float32": (ONNX, OPENVINO, MXNET),
    "int8": (ONNX, OPENVINO),
    "float16": (ONNX, OPENVINO),
    "bfloat16": (OPENVINO, BFLOAT16),
}
ZOO = "float32"  # what the zoo's models are
# Those of other forms.
SAMPLE = (
    "bert_mini", "distilbert", "gluon_cifar_resnet20_v1", "gluon_mobilenetv2_05",
    "gluon_densenet121", "gluon_googlenet", "gluon_squeezenet11", "regnet_y", "resnet26",
    "vit_tiny",
)  # fmt: skip
# What is quantised of them: products, and what lies between them in networks of convolutions.
QUANTISED = ("Conv", "MatMul", "Gemm", "Add", "MaxPool", "GlobalAveragePool", "Concat")
THREADS = (1, 2)
# Runtimes that differ by less are as good as each other.
NOTABLE = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """A model, with numbers of a form, in a runtime with a number of threads."""

    model: str
    form: str
    runtime: str
    threads: int


@dataclass(frozen=True, slots=True)
class Row:
    """A model's measured latency and its estimate; ``inside`` its interval or not."""

    case: Case
    measured_us: float
    estimate_us: float
    inside: bool
    bricks: int
    occurrences: int


# Rows by model, for each runtime and number of threads.
ByColumn = Mapping[tuple[str, int], Mapping[str, Row]]
# Of each model, the runtime that is fastest when measured, and by the estimates.
Fastest = Sequence[tuple[str, str]]


def cases() -> list[Case]:
    """All models of the zoo, and some with numbers of other forms."""
    return [
        Case(model, form, runtime, threads)
        for form, runtimes in FORMS.items()
        for model in ([each.name for each in entries()] if form == ZOO else SAMPLE)
        for threads in THREADS
        for runtime in runtimes
    ]


def run(case: Case, run: Run) -> Row:
    """Compare a model with its runs."""
    with (
        tempfile.TemporaryDirectory() as folder,
        run.bench(runtime=case.runtime, threads=case.threads) as bench,
    ):
        converted = case.form in ("int8", "float16")
        name = str(_converted(case.model, case.form, Path(folder))) if converted else case.model
        (row,) = bench.compare([bench.read(name)]).rows
    if not isinstance(row, ModelComparison):
        raise BricksError(row.error)
    return Row(
        case,
        microseconds(row.measured_s.value),
        microseconds(row.estimate.estimate_s),
        row.estimate.low_s <= row.measured_s.value <= row.estimate.high_s,
        len(row.plan.keys),
        len(row.plan.occurrences),
    )


def _converted(name: str, form: str, folder: Path) -> Path:
    """A zoo model with synthetic weights in another form, written to ``folder``."""
    made = folder / f"{name}_{form}.onnx"
    model = onnx.load(entry(name).path, load_external_data=False)
    pool = Pool(0)
    for tensor in model.graph.initializer:
        if is_referenced(tensor):
            type_ = TensorType(onnx.TensorProto.DataType.Name(tensor.data_type), (*tensor.dims,))
            tensor.CopyFrom(numpy_helper.from_array(pool.weight(tensor.name, type_), tensor.name))
    if form == "float16":
        onnx.save(float16.convert_float_to_float16(model, keep_io_types=True), made)
    else:
        _quantise(model, folder, made)
    return made


def _quantise(model: onnx.ModelProto, folder: Path, made: Path) -> None:
    floats = folder / "floats.onnx"
    onnx.save(model, folder / "raw.onnx")
    logging.disable(logging.WARNING)
    quantization.quant_pre_process(folder / "raw.onnx", floats, skip_symbolic_shape=True)
    quantization.quantize_static(
        floats, made, _Samples(onnx.load(floats).graph.input),
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        op_types_to_quantize=list(QUANTISED),
    )  # fmt: skip
    logging.disable(logging.NOTSET)


class _Samples(quantization.CalibrationDataReader):  # type: ignore[misc]  # its package has no types
    """Two random samples of all inputs."""

    def __init__(self, inputs: Sequence[onnx.ValueInfoProto]) -> None:
        random = np.random.default_rng(0)
        self._left = [{each.name: _sample(each, random) for each in inputs} for _ in range(2)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def _sample(value: onnx.ValueInfoProto, random: np.random.Generator) -> np.ndarray:
    kind = value.type.tensor_type
    shape = [size.dim_value or 1 for size in kind.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    return (random.random(shape) if dtype.kind == "f" else np.ones(shape)).astype(dtype)


def parts(results: Results[Row]) -> dict[str, str]:
    """The tables of each form."""
    return {
        "runtimes" if form == ZOO else f"runtimes_{form}": _tables(results, form) for form in FORMS
    }


def summed_up(results: Results[Row]) -> dict[str, str]:
    """OpenVINO's estimates of the zoo, and how often estimates name the fastest runtime."""
    own = [row for row in results.rows if row.case.form == ZOO]
    openvino = [row for row in own if row.case.runtime == "openvino"]
    columns: dict[tuple[str, int], dict[str, Row]] = {}
    for row in own:
        columns.setdefault((row.case.runtime, row.case.threads), {})[row.case.model] = row
    pairs = [pair for threads in THREADS for pair in _fastest(columns, threads)]
    right = sum(measured == predicted for measured, predicted in pairs)
    ratios = Ratios.of((row.estimate_us, row.measured_us) for row in openvino)
    named = {"fastest_named": f"{right} of {len(pairs)}"}
    return {**summary.row("openvino", ratios, [row.inside for row in openvino]), **named}


def _tables(results: Results[Row], form: str) -> str:
    rows = {row.case: row for row in results.rows if row.case.form == form}
    columns = [
        (runtime, threads)
        for threads in THREADS
        for runtime in RUNTIMES
        if any((of.runtime, of.threads) == (runtime, threads) for of in rows)
    ]
    by_column = {
        column: {
            case.model: row
            for case, row in rows.items()
            if (case.runtime, case.threads) == column
        }
        for column in columns
    }  # fmt: skip
    fastest = {threads: _fastest(by_column, threads) for threads in THREADS}
    failed = [each for each in results.failed if each.case.form == form]
    models = sorted({case.model for case in rows} | {each.case.model for each in failed})
    return paragraphs(
        _accuracy(results, by_column, fastest),
        "\n".join(_named(threads, pairs) for threads, pairs in fastest.items() if pairs),
        _latencies(by_column, models),
        "\n".join(_refusals(failed)),
    )


def _thread_count(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


def _accuracy(results: Results[Row], by_column: ByColumn, fastest: Mapping[int, Fastest]) -> str:
    """A row of errors for each runtime and number of threads."""
    head = [results.about.system, "models", "median error", "95th percentile", "worst",
            "geometric mean", "inside the interval", "faster than all others",
            "told"]  # fmt: skip
    lines = []
    for (runtime, threads), of in by_column.items():
        rows = list(of.values())
        ratios = Ratios.of((row.estimate_us, row.measured_us) for row in rows)
        own = [predicted for measured, predicted in fastest[threads] if measured == runtime]
        version = results.about.runtimes[runtime]
        lines.append([
            f"{runtime} {version}, {_thread_count(threads)}",
            str(len(rows)),
            percent(ratios.median_error),
            percent(float(np.percentile(ratios.errors, 95))),
            percent(ratios.worst_error),
            number(ratios.geomean, 3),
            percent(mean(row.inside for row in rows), 0),
            str(len(own)),
            str(sum(predicted == runtime for predicted in own)),
        ])  # fmt: skip
    return table(head, lines)


def _fastest(by_column: ByColumn, threads: int) -> Fastest:
    """The runtime that is fastest when measured, and by the estimates, for each model.

    Without models that one runtime alone runs, and those whose two fastest differ by at most
    ``NOTABLE``.
    """
    by_model: dict[str, dict[str, Row]] = {}
    for (runtime, count), rows in by_column.items():
        for model, row in rows.items():
            if count == threads:
                by_model.setdefault(model, {})[runtime] = row
    found = []
    for runtimes in by_model.values():
        latencies = sorted(row.measured_us for row in runtimes.values())
        if len(runtimes) > 1 and latencies[1] > (1 + NOTABLE) * latencies[0]:
            measured = min(runtimes, key=lambda name: runtimes[name].measured_us)
            predicted = min(runtimes, key=lambda name: runtimes[name].estimate_us)
            found.append((measured, predicted))
    return found


def _named(threads: int, pairs: Fastest) -> str:
    right = sum(measured == predicted for measured, predicted in pairs)
    return (
        f"With {_thread_count(threads)}, estimates name the fastest runtime for {right} of"
        f" {len(pairs)} models ({percent(right / len(pairs), 0)}) whose two fastest differ by more"
        f" than {percent(NOTABLE, 0)}."
    )


def _latencies(by_column: ByColumn, models: Iterable[str]) -> str:
    """The measured latency of each model in each runtime, and how far the estimate is off."""
    head = [f"{runtime}, {_thread_count(threads)}" for runtime, threads in by_column]
    lines = ([model, *(_cell(of.get(model)) for of in by_column.values())] for model in models)
    return table(["model", *head], lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    error = row.estimate_us / row.measured_us - 1
    sign = "-" if error < 0 else "+"
    return f"{row.measured_us / 1e3:.3g} ms ({sign}{percent(abs(error))})"


def _refusals(failed: Iterable[Failed[Case]]) -> Iterable[str]:
    """Why a runtime does not run a model; MXNet has no operators for most transformers."""
    order = sorted(failed, key=lambda each: (each.case.model, RUNTIMES.index(each.case.runtime)))
    lines = (
        f"- {each.case.model}, {each.case.runtime}: {each.error}"
        for each in order
        if each.case.runtime != MXNET
    )
    return dict.fromkeys(lines)


BENCHMARKS = (
    Benchmark("runtimes", "runtimes.md", Row, cases, run, parts, others={summary.PAGE: summed_up}),
)
