#!/bin/sh
# A trace of PyTorch's profiler with record_shapes has no sizes of the indices of x[i].
#
# Guess:     record_shapes=True records the shapes of all tensors that an operator reads.
# Version:   torch 2.13.0 (CPU).
# Behaviour: tensors in a list are recorded if the list is one of tensors (aten::cat), and not if they
#            are optional (aten::index, which x[i] calls): "Input Dims" has [] for the whole list, and
#            "Input type" is empty. A gather of 10 rows and one of 100,000 rows leave the same record.
# Seen:      aten::cat [[[1000, 64], [1000, 64]], []]
#            aten::index [[1000, 64], []]  (10 rows)
#            aten::index [[1000, 64], []]  (100000 rows)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0
"$folder/venv/bin/python" - "$folder" <<'END'
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile


def recorded(name: str, run) -> list:
    """The input sizes that the trace has of the one call of ``name``."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
        run()
    path = f"{sys.argv[1]}/trace.json"
    trace.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    (event,) = (event for event in events if event.get("name") == name)
    return event["args"]["Input Dims"]


x = torch.randn(1000, 64)
cat = recorded("aten::cat", lambda: torch.cat([x, x]))
few, many = (
    recorded("aten::index", lambda: x[torch.zeros(rows, dtype=torch.int64)])
    for rows in (10, 100_000)
)
print("aten::cat", cat)
print("aten::index", few, " (10 rows)")
print("aten::index", many, " (100000 rows)")
assert cat == [[[1000, 64], [1000, 64]], []]
assert few == many == [[1000, 64], []]
END
