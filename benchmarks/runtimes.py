"""The zoo in several runtimes, with one thread and with two: which is faster, and how well told.

Writes docs/runtimes.md (its tables) and benchmarks/results/runtimes.json.

    .venv/bin/python benchmarks/runtimes.py

With another ``--form``, models of several families are compared whose numbers have it, and results
are in runtimes_int8.json, say: int8 and float16 are made by ONNX Runtime's own tools, with
synthetic weights; bfloat16 is how OpenVINO computes by itself where the processor can.

Every model is compared in every runtime before the next model, each time in a cache of its own. A
comparison is kept at once, and the next call goes on with what lacks. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime import quantization
from onnxruntime.transformers import float16
from page_parts import put

from bricks import Bench, BricksError, ModelComparison
from bricks.graph.payload import is_referenced
from bricks.graph.synthesis import Pool
from bricks.graph.tensor import TensorType
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import number, percent
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "runtimes.md"

RUNTIMES = ("onnxruntime", "openvino", "openvino-bf16", "mxnet")
ONNX, OPENVINO, BFLOAT16, MXNET = RUNTIMES
FORMS = {
    "float32": (ONNX, OPENVINO, MXNET),
    "int8": (ONNX, OPENVINO),
    "float16": (ONNX, OPENVINO),
    "bfloat16": (OPENVINO, BFLOAT16),
}
ZOO = "float32"  # what the zoo's models are
# Those of other forms.
SAMPLE = (
    *("bert_mini", "distilbert", "gluon_cifar_resnet20_v1", "gluon_mobilenetv2_05"),
    *("gluon_densenet121", "gluon_googlenet", "gluon_squeezenet11"),
    *("regnet_y", "resnet26", "vit_tiny"),
)
# What is quantised of them: products, and what lies between them in networks of convolutions.
QUANTISED = ("Conv", "MatMul", "Gemm", "Add", "MaxPool", "GlobalAveragePool", "Concat")
THREADS = (1, 2)
# Runtimes that differ by less are as good as each other.
NOTABLE = 0.05
RULE = StopRule(precision=0.02, max_rounds=12)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what lacks, and write the tables from all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", help="Only these of the zoo.")
    parser.add_argument(
        "--runtimes", nargs="+", choices=RUNTIMES, help="Instead of those of the form."
    )
    parser.add_argument("--form", default=ZOO, choices=FORMS, help="Of the models' numbers.")
    parser.add_argument("--raw", type=Path, help="Where results are, instead of there.")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the tables.")
    arguments = parser.parse_args(words)
    form = arguments.form
    runtimes = arguments.runtimes or FORMS[form]
    ending = "" if form == ZOO else f"_{form}"
    raw = arguments.raw or RESULTS / f"runtimes{ending}.json"
    facts: dict[str, Any] = {"models": {}, "versions": {}}
    if raw.exists():
        facts = json.loads(raw.read_text(encoding="utf-8"))
    chosen = arguments.models or ([e.name for e in entries()] if form == ZOO else SAMPLE)
    if unknown := set(chosen).difference(each.name for each in entries()):
        parser.error(f"the zoo has no model {', '.join(sorted(unknown))}")
    for name in () if arguments.pages else chosen:
        found = facts["models"].setdefault(name, {})
        if found.keys() >= {f"{r}:{t}" for r in runtimes for t in THREADS}:
            continue
        with tempfile.TemporaryDirectory() as folder:
            given = name
            if form in ("int8", "float16"):
                given = str(_converted(name, form, Path(folder)))
            for threads in THREADS:
                for runtime in runtimes:
                    if f"{runtime}:{threads}" not in found:
                        found[f"{runtime}:{threads}"] = _row(runtime, threads, given, facts)
        print(name, found, flush=True)
        raw.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    tables = (_accuracy(facts), _told(facts), _models(facts), _refused(facts))
    body = "\n\n".join(filter(None, ("\n".join(lines) for lines in tables)))
    put(arguments.page, __file__, {f"runtimes{ending}": body})


def _converted(name: str, form: str, folder: Path) -> Path:
    """A zoo model with synthetic weights in another form, written to ``folder``."""
    made = folder / f"{name}_{form}.onnx"
    (entry,) = (entry for entry in entries() if entry.name == name)
    model = onnx.load(entry.path, load_external_data=False)
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


def _row(runtime: str, threads: int, name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """One model in one runtime: latencies in microseconds, or the reason why there are none."""
    try:
        with (
            tempfile.TemporaryDirectory() as cache,
            Bench(
                cache, runtime=runtime, threads=threads, conditions=Conditions(rule=RULE),
                published=False,
            ) as bench,
        ):  # fmt: skip
            (row,) = bench.compare([bench.read(name)]).rows
            facts["system"] = bench.target.system.name
            facts["date"] = datetime.now(UTC).date().isoformat()
            facts["versions"][runtime] = bench.target.runtime.version
    except BricksError as error:
        return {"error": str(error)}
    if not isinstance(row, ModelComparison):
        return {"error": row.error}
    return {
        "measured_us": _micro(row.measured_s.value),
        "estimate_us": _micro(row.estimate.estimate_s),
        "inside": row.estimate.low_s <= row.measured_s.value <= row.estimate.high_s,
        "bricks": len(row.plan.keys),
        "occurrences": len(row.plan.occurrences),
    }


def _micro(latency_s: float) -> float:
    return float(f"{latency_s * 1e6:.4g}")


def _cells(facts: Mapping[str, Any], runtime: str, threads: int) -> dict[str, Any]:
    """By model, what was measured with a runtime and so many threads."""
    name = f"{runtime}:{threads}"
    rows = {model: found.get(name, {"error": "-"}) for model, found in facts["models"].items()}
    return {model: row for model, row in rows.items() if "error" not in row}


def _columns(facts: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Runtimes and threads with which anything was measured."""
    both = [(runtime, threads) for threads in THREADS for runtime in RUNTIMES]
    return [(runtime, threads) for runtime, threads in both if _cells(facts, runtime, threads)]


def _head(facts: Mapping[str, Any], runtime: str, threads: int) -> str:
    version = facts["versions"][runtime]
    return f"{runtime} {version}, {threads} thread{'s' * (threads > 1)}"


def _accuracy(facts: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"| {facts['system']} | models | median error | 95th percentile | worst |"
        " geometric mean | inside the interval | faster than all others | told |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for runtime, threads in _columns(facts):
        rows = [*_cells(facts, runtime, threads).values()]
        ratios = [row["estimate_us"] / row["measured_us"] for row in rows]
        errors = [abs(ratio - 1) for ratio in ratios]
        fastest = _fastest(facts, threads)
        own = [told for measured, told in fastest if measured == runtime]
        shown = [
            percent(statistics.median(errors)),
            percent(float(np.percentile(errors, 95))),
            percent(max(errors)),
            number(statistics.geometric_mean(ratios), 3),
            f"{statistics.mean(row['inside'] for row in rows):.0%}".replace("%", " %"),
            str(len(own)),
            str(sum(told == runtime for told in own)),
        ]
        yield f"| {_head(facts, runtime, threads)} | {len(rows)} | {' | '.join(shown)} |"


def _fastest(facts: Mapping[str, Any], threads: int) -> list[tuple[str, str]]:
    """The runtime that is fastest when measured, and by the estimates, for each model.

    Without models that one runtime alone runs, and those whose two fastest differ by at most
    ``NOTABLE``.
    """
    cells = {runtime: _cells(facts, runtime, threads) for runtime in RUNTIMES}
    found = []
    for model in facts["models"]:
        rows = {runtime: of[model] for runtime, of in cells.items() if model in of}
        latencies = sorted(row["measured_us"] for row in rows.values())
        if len(rows) > 1 and latencies[1] > (1 + NOTABLE) * latencies[0]:
            found.append(
                (
                    min(rows, key=lambda runtime: rows[runtime]["measured_us"]),
                    min(rows, key=lambda runtime: rows[runtime]["estimate_us"]),
                )
            )
    return found


def _told(facts: Mapping[str, Any]) -> Iterator[str]:
    for threads in THREADS:
        if found := _fastest(facts, threads):
            right = sum(measured == told for measured, told in found)
            yield (
                f"With {threads} thread{'s' * (threads > 1)}, estimates name the fastest runtime"
                f" for {right} of {len(found)} models ({right / len(found):.0%}) whose two fastest"
                f" differ by more than {NOTABLE:.0%}."
            ).replace("%", " %")


def _models(facts: Mapping[str, Any]) -> Iterator[str]:
    columns = _columns(facts)
    heads = [f"{runtime}, {threads} thread{'s' * (threads > 1)}" for runtime, threads in columns]
    yield f"| model | {' | '.join(heads)} |"
    yield f"|---|{'--:|' * len(columns)}"
    for model, found in sorted(facts["models"].items()):
        cells = [_cell(found.get(f"{runtime}:{threads}", {})) for runtime, threads in columns]
        yield f"| {model} | {' | '.join(cells)} |"


def _cell(row: Mapping[str, Any]) -> str:
    if "measured_us" not in row:
        return "–"
    error = row["estimate_us"] / row["measured_us"] - 1
    sign = "-" if error < 0 else "+"
    return f"{row['measured_us'] / 1e3:.3g} ms ({sign}{percent(abs(error))})"


def _refused(facts: Mapping[str, Any]) -> Iterator[str]:
    """Why a runtime does not run a model; MXNet has no operators for most transformers."""
    for model, found in sorted(facts["models"].items()):
        for runtime in (each for each in RUNTIMES if each != MXNET):
            cells = [found.get(f"{runtime}:{threads}", {}) for threads in THREADS]
            reasons = dict.fromkeys(cell["error"] for cell in cells if "error" in cell)
            yield from (f"- {model}, {runtime}: {reason}" for reason in reasons)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: run the same command again to go on") from None
