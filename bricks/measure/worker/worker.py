"""The worker: passes each request to the method that handles its type, in the child process.

If the process dies (of a crash of the runtime, for lack of memory, or ended by the parent because
it hangs), only this process ends. Must not know of the store, or of why a request is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bricks.errors import WorkerError
from bricks.measure.protocol.request import Request, answer_to_json, request_from_json
from bricks.measure.worker.device_heating import DeviceHeating
from bricks.measure.worker.evaluation import EvaluationRequests
from bricks.measure.worker.fused_runs import FusedRuns
from bricks.measure.worker.generating import GenerationRequests
from bricks.measure.worker.graphs import GraphRequests
from bricks.measure.worker.handlers import Handlers, handlers_of
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.loaded_pieces import LoadedPieces
from bricks.measure.worker.loading import LoadingRequests
from bricks.measure.worker.quantising import QuantisingRequests
from bricks.measure.worker.rank import RankRequests
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.serving import ServingRequests
from bricks.measure.worker.training import TrainingRequests
from bricks.measure.worker.walk_state import WalkState
from bricks.measure.worker.walking import WalkRequests
from bricks.measure.worker.warm_up import WarmUp
from bricks.measure.worker.whole_models import WholeModelRequests


class Worker:
    """One backend, its loaded ``pieces``, and the ``handlers`` of all requests.

    ``say`` sends a message to the parent while a request is handled.
    """

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        def announce(number: int) -> None:
            say({"at": number})

        runtime = WorkerRuntime()
        instruments = WorkerInstruments(runtime)
        self.pieces = LoadedPieces(runtime, instruments)
        state = WalkState(
            runtime, instruments, self.pieces, FusedRuns(), WarmUp(), DeviceHeating(), announce
        )
        subjects = (
            runtime,
            LoadingRequests(state),
            WalkRequests(state),
            WholeModelRequests(runtime, state.unload),
            GraphRequests(runtime),
            EvaluationRequests(runtime),
            TrainingRequests(runtime, announce),
            RankRequests(runtime),
            ServingRequests(runtime, announce),
            GenerationRequests(runtime),
            QuantisingRequests(runtime),
        )
        self.handlers: Handlers = {
            kind: handle for subject in subjects for kind, handle in handlers_of(subject).items()
        }
        self._kinds = {kind.__name__: kind for kind in self.handlers}

    def answer(self, request: Request[Any]) -> Any:
        """The answer to a request, of the request's answer type."""
        return self.handlers[type(request)](request)

    def answer_json(self, message: dict[str, Any]) -> Any:
        """The answer to a request; both are JSON."""
        kind = self._kinds.get(str(message.pop("op", "")))
        if kind is None:
            raise WorkerError("the worker does not know this operation")
        return answer_to_json(kind, self.answer(request_from_json(kind, message)))
