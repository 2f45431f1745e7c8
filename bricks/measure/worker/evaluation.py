"""Requests about what the runtime computes: bricks chained, and results beside a reference.

Must not know what else a worker has loaded, nor how results are judged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bricks.backends.base import Backend
from bricks.backends.programs import InDouble
from bricks.decompose.plan import Plan
from bricks.errors import BackendError, WorkerError
from bricks.graph.model import Model
from bricks.graph.program import is_program
from bricks.graph.reference_values import Reference
from bricks.graph.view import graph_of, parse_model
from bricks.measure.protocol import unpack
from bricks.measure.worker.accuracy import (
    evaluate_counterpart,
    evaluate_model,
    evaluate_program,
)
from bricks.measure.worker.model_data import model_data
from bricks.measure.worker.reference import write_reference
from bricks.measure.worker.verify import verify_model, verify_program

Facts = dict[str, Any]


class EvaluationRequests:
    """Answers requests with what ``backend`` computes; synthetic data follow from ``seed``.

    ``name`` is that of the backend.
    """

    def __init__(
        self, backend: Callable[[], Backend], name: Callable[[], str], seed: Callable[[], int]
    ) -> None:
        self._backend, self._name, self._seed = backend, name, seed

    def do_verify(
        self, name: str, folder: str, model: str, plan: dict[str, Any], bricks: dict[str, str]
    ) -> Facts:
        """Whether the model's bricks, chained, compute what the model does."""
        of = _model(name, folder, model, digest=plan["digest"])
        chained = Plan.from_json(plan)
        protos = {key: parse_model(unpack(text)) for key, text in bricks.items()}
        if is_program(parse_model(of.skeleton)):
            backend: Any = self._backend()
            return verify_program(backend, model=of, plan=chained, bricks=protos)
        return verify_model(
            self._backend(), seed=self._seed(), model=of, plan=chained, bricks=protos
        )

    def do_expect(self, name: str, folder: str, model: str, file: str, every: bool) -> Facts:
        """Write the reference in double; it is the same whatever the backend."""
        data = model_data(_model(name, folder, model), self._seed())
        return {
            "reason": write_reference(data, Path(file), every=every),
            "own_weights": data.own_weights,
        }

    def do_evaluate(
        self,
        model: str,
        repeats: int,
        file: str | None = None,
        tolerance: float | None = None,
        outputs: str | None = None,
        gradients: bool = False,
        names: list[str] | None = None,
    ) -> Facts:
        """What the runtime computes, beside the reference in ``file`` or the program in double.

        ``names`` are those of the outputs of the ONNX model that a program computes.
        """
        into = None if outputs is None else Path(outputs)
        proto = parse_model(unpack(model))
        if is_program(proto):
            backend: Any = self._backend()
            if not hasattr(backend, "in_double"):
                raise BackendError(f"{self._name()} has no step in double to compare with")
            programs: InDouble = backend
            if file is not None and names is not None:
                held = Reference.load(Path(file))
                return evaluate_counterpart(
                    programs, proto, held, names, repeats=repeats, outputs=into
                )
            return evaluate_program(programs, proto, repeats=repeats, gradients=gradients)
        if file is None:
            raise WorkerError("an ONNX model is evaluated with the data of its reference")
        return evaluate_model(
            self._backend(),
            proto,
            Reference.load(Path(file)),
            repeats=repeats,
            tolerance=tolerance,
            outputs=into,
        )


def _model(name: str, folder: str, model: str, *, digest: str = "") -> Model:
    """The model in a request, whose data files are in ``folder``."""
    skeleton = unpack(model)
    graph = graph_of(parse_model(skeleton))
    inputs = tuple((each, graph.types[each]) for each in graph.inputs)
    return Model(name, Path(folder), skeleton, inputs, digest)
