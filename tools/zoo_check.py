"""Every model of the zoo: decomposed, chained, measured, and compared with where it came from.

``make zoo-check`` runs this by hand, since it takes a quarter of an hour and more (``--jobs 2`` on
two cores: eight minutes); it writes research/zoo.json. Per runtime
(MXNet for the models that come from it) and granularity: are the chained bricks exact, or by how
much are they off. With ``--values FOLDER``, where ``models/recipes/gluon_values.py`` has put what
MXNet computes, also by how much the file's outputs are off from that. Measuring takes one sample of
each executed brick, to see that there can be one; ``--no-measure`` leaves it out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import psutil
from joblib import Parallel, delayed
from onnx import numpy_helper

from bricks import Bench
from bricks.errors import BricksError
from bricks.measure.conditions import Conditions, StopRule
from bricks.zoo import ZooEntry, entries, entry

PAGE = Path(__file__).resolve().parents[1] / "research" / "zoo.json"
CUTS = (
    *("onnxruntime:executed", "onnxruntime:1", "onnxruntime:4"),
    *("openvino:executed", "mxnet:executed"),
)
ONCE = Conditions(
    rule=StopRule(min_rounds=1, max_rounds=1, passes=1), timeout_s=60.0, exclusive=False
)
# How far two runtimes may be apart, relative to the greatest output: sums are ordered otherwise.
APART = 1e-3


Benches = dict[tuple[str, str], Bench]


def checked(model: ZooEntry, benches: Benches, *, measure: bool) -> dict[str, Any]:
    """What is found of a model; ``problems`` says what is wrong, a line each."""
    found: dict[str, Any] = {"name": model.name, "problems": []}
    for (runtime, granularity), bench in benches.items():
        if runtime.startswith("mxnet") and model.framework != "mxnet":
            continue
        cut = f"{runtime}, {granularity}"
        try:
            read = bench.read(str(model.path))
            made = bench.decompose(read)
            verdict = bench.verify(read).facts()
        except BricksError as error:
            found["problems"].append(f"{cut}: {error}")
            continue
        found[cut] = {
            "occurrences": len(made.plan.occurrences),
            "bricks": len(made.bricks),
            "exact": verdict["exact"],
            "max_rel_difference": verdict["max_rel_difference"],
        }
        off = verdict["max_rel_difference"]
        if (runtime, granularity) == ("onnxruntime", "executed") and not verdict["exact"]:
            found["problems"].append(f"{cut}: the chained bricks are not exact")
        elif off is None or off > verdict["tolerance"]:
            found["problems"].append(f"{cut}: the chained bricks are off by {off}")
        if not verdict["finite"]:
            found["problems"].append(f"{cut}: outputs hold no finite number")
        if granularity == "1" and made.flops != model.flops:
            found["problems"].append(f"the manifest says {model.flops} FLOPs, not {made.flops}")
        if measure and granularity == "executed":
            failures = bench.measure([read]).failures
            found["problems"] += [f"{cut}: {f.key}: {f.reason}" for f in failures]
    return found


def distance(model: ZooEntry, values: Path) -> float:
    """How far ONNX Runtime is from the framework with the same weights, at most.

    Relative to the greatest magnitude of an output; infinite where outputs differ in shape.
    """
    given = np.load(values)
    proto = onnx.load(str(model.path), load_external_data=False)
    options = onnxruntime.SessionOptions()
    names, arrays = [], []
    for tensor in proto.graph.initializer:
        key = f"p:{tensor.name}"
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            names.append(tensor.name)
            arrays.append(onnxruntime.OrtValue.ortvalue_from_numpy(given[key]))
        elif key in given:
            tensor.CopyFrom(numpy_helper.from_array(given[key], tensor.name))
    options.add_external_initializers(names, arrays)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {value.name: given[f"i:{value.name}"] for value in session.get_inputs()}
    results = session.run(None, feeds)
    expected = [given[f"o:{i}"] for i in range(len(results))]
    if [a.shape for a in expected] != [b.shape for b in results]:
        return float("inf")
    pairs = zip(expected, results, strict=True)
    return max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) for a, b in pairs)


def check(
    models: Sequence[ZooEntry],
    values: Path | None,
    cuts: Sequence[tuple[str, str]],
    *,
    measure: bool,
    jobs: int = 1,
) -> dict[str, Any]:
    """All models, and how many have problems; ``jobs`` of them at the same time."""
    shares = [models[i::jobs] for i in range(jobs)]
    cores = psutil.cpu_count(logical=False) or 1
    found = Parallel(n_jobs=jobs)(
        delayed(_check_some)(share, values, cuts, max(1, cores // jobs), measure=measure)
        for share in shares
    )
    by_name = {row["name"]: row for rows in found for row in rows}
    rows = [by_name[model.name] for model in models]
    wrong = [row["name"] for row in rows if row["problems"]]
    return {"onnxruntime": onnxruntime.__version__, "models": rows, "with_problems": wrong}


def _check_some(
    models: Sequence[ZooEntry],
    values: Path | None,
    cuts: Sequence[tuple[str, str]],
    threads: int,
    *,
    measure: bool,
) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        benches = {
            (runtime, cut): Bench(
                cache, runtime=runtime, granularity=cut, threads=threads, conditions=ONCE
            )
            for runtime, cut in cuts
        }
        try:
            for model in models:
                row = checked(model, benches, measure=measure)
                stored = None if values is None else values / f"{model.name}.npz"
                if stored is not None and stored.is_file():
                    row["distance_to_framework"] = distance(model, stored)
                    if not row["distance_to_framework"] <= APART:
                        row["problems"].append("the framework computes something else")
                rows.append(row)
                print(model.name, *(row["problems"] or ["is right"]), sep=": ", file=sys.stderr)
        finally:
            for bench in benches.values():
                bench.close()
    return rows


def main() -> None:
    """Check models by name, or all; exit status 1 if one has a problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--values", type=Path, help="what the frameworks compute, NAME.npz")
    parser.add_argument("--cuts", nargs="+", default=CUTS, metavar="RUNTIME:GRANULARITY")
    parser.add_argument("--no-measure", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="models at the same time")
    parser.add_argument("--json", type=Path, default=PAGE)
    given = parser.parse_args()
    models = [entry(name) for name in given.names] or entries()
    cuts = [(runtime, cut) for runtime, _, cut in (text.partition(":") for text in given.cuts)]
    facts = check(models, given.values, cuts, measure=not given.no_measure, jobs=given.jobs)
    given.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    sys.exit(bool(facts["with_problems"]))


if __name__ == "__main__":
    main()
