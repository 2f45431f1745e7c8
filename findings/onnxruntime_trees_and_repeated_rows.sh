#!/bin/sh
# A tree ensemble takes three times as long on fresh rows as on one row that comes again and again.
#
# Guess:     the latency of TreeEnsembleRegressor for one row depends on the ensemble and hardly on the
#            rows: each row takes one path of the same length through each tree.
# Versions:  onnxruntime 1.31.1, onnx 1.23.0, numpy 2.4.6.
# Behaviour: branch predictors learn the comparisons of rows that come again. 100 complete trees of depth
#            10, one thread: with 1 to 4 rows in rotation 6 us, with 16 rows 12 us, with 64 and more rows
#            20 us, as with fresh rows. A benchmark that repeats one input shows a third of what a server
#            sees.
# Seen:      (Intel Xeon, model 167)  1 row: 5.9 us, 64 rows: 19.3 us, 1024 rows: 20.5 us
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnxruntime==1.31.1 onnx==1.23.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import time
from statistics import median

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

TREES, DEPTH, FEATURES, RUNS = 100, 10, 20, 2000
rng = np.random.default_rng(0)
inner = 2**DEPTH - 1
nodes = {name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes")}
nodes |= {"truenodeids": [], "falsenodeids": []}
leaves = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
for tree in range(TREES):
    for number in range(2 * inner + 1):
        leaf = number >= inner
        row = (
            tree, number, 0 if leaf else int(rng.integers(FEATURES)),
            0.0 if leaf else float(rng.normal()), "LEAF" if leaf else "BRANCH_LEQ",
            0 if leaf else 2 * number + 1, 0 if leaf else 2 * number + 2,
        )
        for column, value in zip(nodes.values(), row, strict=True):
            column.append(value)
        if leaf:
            row = (tree, number, 0, float(rng.normal()))
            for column, value in zip(leaves.values(), row, strict=True):
                column.append(value)
attributes = {f"nodes_{name}": column for name, column in nodes.items()}
attributes |= {f"target_{name}": column for name, column in leaves.items()}
node = helper.make_node(
    "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **attributes
)
graph = helper.make_graph(
    [node],
    "trees",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, FEATURES])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
)
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
onnx.checker.check_model(model)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(model.SerializeToString(), options)
rows = rng.normal(size=(1024, 1, FEATURES)).astype(np.float32)


def latency_us(count: int) -> float:
    """The median latency with so many rows in rotation."""
    taken = []
    for run in range(RUNS):
        began = time.perf_counter()
        session.run(None, {"x": rows[run % count]})
        taken.append(time.perf_counter() - began)
    return median(taken[RUNS // 4 :]) * 1e6


by_count = {count: [] for count in (1, 64, 1024)}
for _ in range(5):  # in turn: machines change their speed
    for count, seen in by_count.items():
        seen.append(latency_us(count))
one, some, fresh = (median(seen) for seen in by_count.values())
print(f"1 row: {one:.1f} us, 64 rows: {some:.1f} us, 1024 rows: {fresh:.1f} us")
assert fresh > 1.5 * one, "rows that come again are no faster"
assert 0.7 < some / fresh < 1.3, "64 rows are learned"
END
