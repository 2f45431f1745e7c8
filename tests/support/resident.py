"""How much memory a run of one operator takes beyond its inputs and outputs, as the system says."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of


@dataclass(frozen=True)
class Case:
    """A node: its inputs, of which those at ``weights`` are initializers; None is no input."""

    operator: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, object] = field(default_factory=dict)
    weights: Sequence[int] = ()
    outputs: int = 1
    domain: str = ""
    opset: int = 17

    def __str__(self) -> str:
        shapes = " ".join("-" if a is None else "x".join(map(str, a.shape)) for a in self.inputs)
        return f"{self.operator} {shapes} {dict(self.attributes)}"


@dataclass(frozen=True)
class Observed:
    """The brick of a case, and the bytes that the runtime took for a run of it."""

    brick: Brick
    workspace_bytes: int


@contextmanager
def apart() -> Iterator[Callable[[Case], Observed]]:
    """Observe in a process in which nothing else allocates, on one processor.

    The system keeps a count of pages per processor and adds them up only now and then, and what
    other tests leave behind in their process comes and goes meanwhile. Not multiprocessing: the
    process that it starts to track resources would outlive this one among the children of a test.
    """
    program = [sys.executable, "-c", "import resident; resident.serve()"]
    path = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=path
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        cases, answers = process.stdin, process.stdout

        def observed(case: Case) -> Observed:
            pickle.dump(case, cases)
            cases.flush()
            answer = pickle.load(answers)
            if isinstance(answer, BaseException):
                raise answer
            assert isinstance(answer, Observed)
            return answer

        yield observed


def serve() -> None:
    """Observe each case that comes in, one after the other, until no more can come."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while True:
        try:
            case = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: object
        try:
            answer = observe(case)
        except (Exception, pytest.skip.Exception) as exc:
            answer = exc
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def observe(case: Case) -> Observed:
    """Run a case with one thread, without an arena, so that nothing is kept from run to run."""
    proto = _model(case)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    return_large()
    session = ort.InferenceSession(proto.SerializeToString(), options)
    given = {
        i.name: ort.OrtValue.ortvalue_from_numpy(_input(case, i.name)) for i in proto.graph.input
    }

    def run() -> list[ort.OrtValue]:
        binding = session.io_binding()
        for name, value in given.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name)
        session.run_with_iobinding(binding)
        found: list[ort.OrtValue] = binding.get_outputs()
        return found

    types = [_type(value.numpy()) for value in run()]
    return Observed(_brick(proto, types), peak_bytes(run) - sum(t.size_bytes for t in types))


def return_large() -> None:
    """Let memory that is large go back to the system as soon as it is freed."""
    ctypes.CDLL(None).mallopt(-3, 64 << 10)


def peak_bytes(run: Callable[[], object]) -> int:
    """By how much this process's memory rises at most while it runs something."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    except OSError as exc:
        pytest.skip(f"this system does not let a process reset its peak: {exc}")
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _model(case: Case) -> onnx.ModelProto:
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(case.inputs)]
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(
        case.operator, names, outputs, domain=case.domain, **dict(case.attributes)
    )
    values, held = [], []
    for i, array in enumerate(case.inputs):
        if array is None:
            continue
        if i in case.weights:
            held.append(numpy_helper.from_array(array, names[i]))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            values.append(helper.make_tensor_value_info(names[i], kind, array.shape))
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "case", values, results, held)
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _input(case: Case, name: str) -> np.ndarray:
    found = case.inputs[int(name.removeprefix("x"))]
    assert found is not None
    return found


def _type(array: np.ndarray) -> TensorType:
    dtype = onnx.TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(array.dtype))
    return TensorType(dtype, array.shape)


def _brick(proto: onnx.ModelProto, types: Sequence[TensorType]) -> Brick:
    known = dict(zip((output.name for output in proto.graph.output), types, strict=True))
    return Cutter(graph_of(proto, known)).cut((0,)).brick


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))
