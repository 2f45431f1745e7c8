"""Profiles a program of ``programs.py`` in PyTorch's environment: FUNCTION FILE [plain]."""

# mypy: ignore-errors

import sys

import programs
import torch
from torch.profiler import ProfilerActivity, profile, schedule

torch.set_num_threads(1)
function, file, *plain = sys.argv[1:]
made = getattr(programs, function)()
module, inputs = made["module"], made["inputs"]


def step():
    if "optimizer" not in made:
        with torch.no_grad():
            return module(*inputs)
    made["optimizer"].zero_grad(set_to_none=True)
    made["loss"](module(*inputs)).backward()
    made["optimizer"].step()


step()
with profile(
    activities=[ProfilerActivity.CPU],
    record_shapes=not plain,
    schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
    on_trace_ready=lambda of: of.export_chrome_trace(file),
) as profiler:
    for _ in range(3):
        step()
        profiler.step()
