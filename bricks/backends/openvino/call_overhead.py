"""Measure the overhead of a call, and the time of a kernel that its counter omits.

Must not know what the overhead is for.
"""

from __future__ import annotations

import statistics
from itertools import pairwise

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from bricks.backends.kernel_counters import CallOverhead
from bricks.backends.openvino.compiling import Compiler, translated
from bricks.backends.openvino.execution import kernels
from bricks.backends.openvino.loaded import BoundRequest

_RUNS, _WARM_UP = 200, 10
# Widths of the products in a row: kernels of many latencies, so that rounding down to whole
# microseconds takes as much as usual, and of weights that exceed the innermost caches.
_WIDTHS = tuple(32 + 16 * (7 * i % 32) for i in range(33))


def measured(compiler: Compiler) -> CallOverhead:
    """Measure with the threads of ``compiler``; takes about a tenth of a second."""
    with translated("measuring what a call costs"):
        value = ops.parameter([1], np.float32)
        trivial = _bound(compiler.compile(ov.Model([ops.relu(value)], [value], "call")))
        value = row = ops.parameter([1, _WIDTHS[0]], np.float32)
        for inputs, outputs in pairwise(_WIDTHS):
            weights = np.full((inputs, outputs), 1 / inputs, np.float32)
            row = ops.matmul(row, ops.constant(weights), False, False)
        compiled = compiler.compile(ov.Model([row], [value], "products"), counted=True)
        products = _bound(compiled)
    call_s = statistics.median(trivial.sample().host_s for _ in range(_RUNS))
    for _ in range(_WARM_UP):
        products.sample()
    before_s = sum(products.counters().values()) * _WARM_UP
    # Runs of one request: kernels of two requests differ by more than the result.
    run_s = statistics.mean(products.sample().host_s for _ in range(_RUNS))
    after_s = sum(products.counters().values()) * (_WARM_UP + _RUNS)
    outside_s = run_s - call_s - (after_s - before_s) / _RUNS
    count = sum(kernel.computes for kernel in kernels(compiled))
    return CallOverhead(call_s, max(0.0, outside_s / count))


def _bound(compiled: ov.CompiledModel) -> BoundRequest:
    """A compiled model of one input, which reads ones."""
    request = compiled.create_infer_request()
    shape = list(compiled.inputs[0].get_shape())
    request.set_input_tensor(ov.Tensor(np.ones(shape, np.float32)))
    return BoundRequest(request, [], 1)
