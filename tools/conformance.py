"""Every test case of the onnx package: decomposed, chained, measured, and counted.

``make conformance`` runs this, which writes research/conformance.md; a test runs it too. Cases are
those of single operators (with the inputs they come with) and the models in the package. What the
runtime runs must decompose at every granularity, its chained bricks must give what the runtime
gives, and every brick must be measured or fail by name. What it does not run must be refused in one
line.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import exports
import numpy as np
import onnx
import wild
from onnx import numpy_helper

from bricks import Bench, read_model
from bricks.errors import BricksError
from bricks.graph.model import Model
from bricks.measure.conditions import Conditions, StopRule

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "research" / "conformance.md"
FINDINGS = ROOT / "research" / "fuzz.json"  # written by fuzzing.py
BEGINNING = (
    "# Conformance",
    "",
    "**Conclusion.** Chained bricks compute what the model computes, bit by bit at executed nodes.",
    "What a runtime cannot run is refused in one line.",
    "",
    "Figures: `make conformance`, `make wild`, `make exports`, `make values`.",
    "",
)
CUTS = ("1", "2", "5", "executed")
OPERATORS = "operators"
LIGHT = "light"
PACKAGED = ("real", "simple", "pytorch-converted", "pytorch-operator")
SHARES = 2  # processes
# One sample of each brick: here it only counts whether there can be one.
ONCE = Conditions(
    rule=StopRule(min_rounds=1, max_rounds=1, passes=1), timeout_s=20.0, exclusive=False
)


@dataclass(frozen=True)
class Case:
    """A model and what it is to be fed with."""

    kind: str
    name: str
    model: onnx.ModelProto | Path
    inputs: tuple[Any, ...]


@dataclass
class Result:
    """What became of a case: at each granularity a word or an error, and its bricks' failures."""

    kind: str
    name: str
    runs: bool  # with the runtime alone
    cuts: dict[str, str] = field(default_factory=dict)
    bricks: dict[str, int] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)
    traceback: str = ""


def cases(kinds: Sequence[str]) -> Iterator[Case]:
    """All cases of these kinds."""
    if OPERATORS in kinds:
        from onnx.backend.test.case.node import collect_testcases

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the cases overflow and divide by zero on purpose
            found = collect_testcases(None)
        for case in found:
            inputs = (_value(each) for each in case.data_sets[0][0])
            yield Case(OPERATORS, case.name, case.model, tuple(inputs))
    if LIGHT in kinds:
        folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
        for path in sorted(folder.glob("*.onnx")):
            yield Case(LIGHT, path.stem, path, ())
    from onnx.backend.test.loader import load_model_tests

    for kind in PACKAGED:
        for case in load_model_tests(kind=kind) if kind in kinds else ():
            if case.model_dir is not None:  # others would have to be downloaded
                folder = Path(case.model_dir)
                yield Case(kind, case.name, folder / "model.onnx", tuple(_data(folder)))


def _data(folder: Path) -> Iterator[Any]:
    """The inputs that come with a packaged model, if any do."""
    for file in sorted(folder.glob("test_data_set_0/input_*.pb"), key=lambda p: int(p.stem[6:])):
        yield _value(onnx.TensorProto.FromString(file.read_bytes()))


def _value(given: Any) -> Any:
    """An input as the runtime takes it: some are given as protos, some as scalars of numpy's."""
    if isinstance(given, onnx.TensorProto):
        return numpy_helper.to_array(given)
    return np.asarray(given) if isinstance(given, np.generic) else given


def runs(case: Case) -> bool:
    """Whether the runtime alone runs the case."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    proto = (
        case.model.SerializeToString() if isinstance(case.model, onnx.ModelProto) else case.model
    )
    try:
        session = ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
        if case.inputs or not session.get_inputs():
            feeds = zip(session.get_inputs(), case.inputs, strict=True)
            given = {i.name: _handed(value, i.type) for i, value in feeds}
            # Not all types of results can be had as arrays.
            if all(isinstance(value, ort.OrtValue) for value in given.values()):
                session.run_with_ort_values([o.name for o in session.get_outputs()], given)
            else:
                session.run(None, given)
    except Exception:  # its errors have no common base
        return False
    return True


def _handed(value: Any, notation: str) -> Any:
    """An input in the form in which the runtime's Python interface takes its type."""
    import onnxruntime as ort

    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSTU":
        return value
    if value.dtype.isbuiltin == 1:
        return ort.OrtValue.ortvalue_from_numpy(value.copy())
    number = onnx.TensorProto.DataType.Value(notation.split("(")[1].removesuffix(")").upper())
    storage = value.copy().view(f"u{value.dtype.itemsize}")
    if notation.endswith(("int4)", "int2)", "e2m1)")):  # packed, at the beginning of more room
        data = np.frombuffer(numpy_helper.from_array(value).raw_data, np.uint8)
        storage = np.zeros(value.shape, np.uint8)
        storage.reshape(-1)[: data.size] = data
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(storage, number)


def examine(found: Sequence[Case], folder: Path) -> list[Result]:
    """Decompose, chain and measure cases at every granularity."""
    results = [Result(case.kind, case.name, runs(case)) for case in found]
    read: dict[int, Model | str] = {}
    for number, case in enumerate(found):
        try:
            read[number] = _read(case, folder)
        except BricksError as error:
            read[number] = _line(error)
        except Exception as error:  # what must never happen is what is looked for
            results[number].traceback = f"reading: {error!r}"
    plans: dict[int, list[tuple[str, object]]] = {number: [] for number in read}
    for cut in CUTS:
        with Bench(folder / "cache", granularity=cut, threads=1, conditions=ONCE) as bench:
            models: dict[int, Model] = {}
            for number, model in read.items():
                if isinstance(model, str):
                    results[number].cuts[cut] = model
                else:
                    _examine_at(bench, cut, model, results[number], plans[number])
                    if cut in results[number].bricks:
                        models[number] = model
            _measure(bench, cut, models, results)
    return results


def _examine_at(
    bench: Bench, cut: str, model: Model, result: Result, plans: list[tuple[str, object]]
) -> None:
    """Decompose and chain at one granularity; ``plans`` are those of coarser or finer ones."""
    try:
        occurrences = bench.decompose(model).plan.occurrences
        result.bricks[cut] = len(occurrences)
        same = [other for other, plan in plans if plan == occurrences and cut != "executed"]
        if not result.runs:
            result.cuts[cut] = "decomposed"
        elif same:  # the same bricks in the same order were chained already
            result.cuts[cut] = result.cuts[same[0]]
        else:
            result.cuts[cut] = _chained(bench, model)
            plans.append((cut, occurrences))
    except BricksError as error:
        result.cuts[cut] = _line(error)
    except Exception as error:
        result.traceback = f"{cut}: {error!r}"


def _read(case: Case, folder: Path) -> Model:
    path = folder / "case.onnx"
    if isinstance(case.model, Path):
        path = case.model
    else:
        path.write_bytes(case.model.SerializeToString())
    graph = onnx.load(path, load_external_data=False).graph
    held = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in held]
    return read_model(path, values=dict(zip(names, case.inputs, strict=False)))


def _chained(bench: Bench, model: Model) -> str:
    difference = bench.verify(model).difference
    if difference.exact:
        return "exact"
    return "close" if difference.within_tolerance else f"different: {difference}"


def _line(error: BricksError) -> str:
    text = str(error)
    return text if text.isprintable() and len(text) <= 1000 else f"no clear line: {text!r}"


def _measure(bench: Bench, cut: str, models: dict[int, Model], results: list[Result]) -> None:
    bench.measure(models.values())
    for number, model in models.items():
        keys = bench.decompose(model).plan.keys
        settled = bench.store.measurements.results(bench.target.key, keys)
        reasons = [str(getattr(settled.get(key), "reason", "")) for key in keys]
        results[number].failures[cut] = [reason for reason in reasons if reason]
        missing = [key for key in keys if key not in settled]
        if missing:
            results[
                number
            ].traceback = f"{cut}: {len(missing)} bricks are neither measured nor failed"


def examine_all(kinds: Sequence[str]) -> list[Result]:
    """All cases, shared by several processes."""
    with tempfile.TemporaryDirectory() as name:
        outs = [Path(name) / f"{share}.json" for share in range(SHARES)]
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--share", str(share), "--out", str(out), *kinds]
            )
            for share, out in enumerate(outs)
        ]
        if any([process.wait() for process in processes]):
            raise RuntimeError("a process that examines cases has failed")
        return [Result(**row) for out in outs for row in json.loads(out.read_text())]


def reason(text: str) -> str:
    """An error without what is particular to its case."""
    text = re.sub(r"^\S+: (?=\S)", "", text)
    text = re.sub(
        r"(Could not find an implementation for \w+).*", "the runtime has no kernel", text
    )
    text = re.sub(
        r".*is not a registered function/op.*", "the runtime does not know the operator", text
    )
    text = re.sub(r"Unsupported model IR version.*", "the file format is too new", text)
    text = re.sub(r"ONNX Runtime only \*guarantees.*", "the opset is too new", text)
    text = re.sub(r"'[^']*'|\([^()]*\)|\[[^\[\]]*\]|/\S+|\d+", "…", text)
    return text[:110]


def page(results: Sequence[Result]) -> str:
    """research/conformance.md."""
    import onnxruntime

    lines = [
        *BEGINNING,
        "Written by `make conformance`: the test cases of onnx"
        f" {onnx.__version__} with ONNX Runtime {onnxruntime.__version__}. Each case that the"
        " runtime runs by itself is decomposed, its [bricks](../docs/glossary.md#brick) are"
        " chained and measured, and the outputs of the chain are compared with the runtime's own:"
        " `exact` means every bit, `close` within the tolerance of `--verify`, because pieces that"
        " are optimised separately may add up in another order. A case that the runtime does not"
        " run must be refused in one line.",
        "",
        "| cases | granularity | tried | the runtime runs | exact | close | different | refused"
        " | bricks | not measured |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    kinds = dict.fromkeys(result.kind for result in results)
    for kind in kinds:
        for cut in CUTS:
            of = [result for result in results if result.kind == kind]
            words = Counter(word(result, cut) for result in of if result.runs)
            row = [
                kind, cut, len(of), sum(words.values()), words["exact"], words["close"],
                words["different"], words["refused"],
                sum(r.bricks.get(cut, 0) for r in of if r.runs),
                sum(len(r.failures.get(cut, ())) for r in of if r.runs),
            ]  # fmt: skip
            lines.append("| " + " | ".join(map(str, row)) + " |")
    lines += ["", "## Bricks that cannot be measured", ""]
    lines += _reasons(f for r in results if r.runs for cut in r.failures.values() for f in cut)
    lines += ["", "## Refused, although the runtime runs it", ""]
    lines += _reasons(
        f"{text}"
        for r in results
        if r.runs
        for cut, text in r.cuts.items()
        if word(r, cut) == "refused"
    )
    lines += [
        "",
        "## Not run by the runtime",
        "",
        "The reasons given at granularity `executed`.",
        "",
    ]
    lines += _reasons(text for r in results if not r.runs for text in _refusals(r))
    return "\n".join([*lines, "", *wild.section(), "", *exports.section(), *damaged()]) + "\n"


def damaged() -> list[str]:
    """The section about damaged files, from what ``make fuzz`` has written."""
    told = json.loads(FINDINGS.read_text())
    limits = told["limits"]
    rows = {
        "cases": told["cases"],
        **told["outcomes"],
        **{f"survived: {what}": count for what, count in told["survived"].items()},
        "findings": sum(told["findings"].values()),
        "longest step": f"{told['longest_step_s']} s",
        "most memory of the main process": f"{told['peak_mib']['main']} MiB",
        "most memory of a worker": f"{told['peak_mib']['worker']} MiB",
    }
    return [
        "",
        "## Damaged files",
        "",
        "Written by `make fuzz`: real models are damaged at random (seed"
        f" {told['seed']}), read, decomposed at granularities 1, 2 and `executed`, and"
        f" occasionally measured. Workers are limited to {limits['memory_mib']} MiB, and to"
        f" {limits['graph_timeout_s']} s for a request. Findings are tracebacks, messages of more"
        " than one line, steps of over 10 s, processes of over 2 GiB, and a main process that"
        " ends.",
        "",
        "| | |",
        "|---|--:|",
        *(f"| {what} | {count} |" for what, count in rows.items()),
    ]


def word(result: Result, cut: str) -> str:
    """What became of a case, in one word."""
    text = result.cuts.get(cut, "refused")
    first = text.split(":", 1)[0]
    return first if first in ("exact", "close", "different", "decomposed") else "refused"


def _refusals(result: Result) -> Sequence[str]:
    """Why a case is refused at granularity ``executed``: as it is decomposed, or brick by brick."""
    if word(result, "executed") == "refused":
        return [result.cuts["executed"]]
    return result.failures["executed"] or ["not refused"]


def _reasons(texts: Iterator[str]) -> list[str]:
    counted = Counter(map(reason, texts)).most_common()
    if not counted:
        return ["None."]
    return ["| times | reason |", "|--:|---|", *(f"| {n} | {text} |" for text, n in counted)]


def main() -> None:
    """Examine, or examine a share for another process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--share", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    kinds = given.kinds or [OPERATORS, LIGHT, *PACKAGED]
    if given.share is None:
        PAGE.write_text(page(examine_all(kinds)))
        return
    mine = [case for i, case in enumerate(cases(kinds)) if i % SHARES == given.share]
    with tempfile.TemporaryDirectory() as name:
        results = examine(mine, Path(name))
    given.out.write_text(json.dumps([asdict(result) for result in results]))


if __name__ == "__main__":
    main()
