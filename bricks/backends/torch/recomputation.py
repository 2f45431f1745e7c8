"""The overhead of activation checkpointing, recorded and replayed as calls of its own.

``torch.utils.checkpoint`` runs Python code around the layers whose activations it drops: in the
forward pass, where it hides them, and in the backward pass, where it recomputes them. No dispatcher
sees this code, which takes as long as dozens of small calls. So it is recorded as calls, which are
timed by checkpointing tiny layers. Must not know how calls are recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils import checkpoint

# The namespace of these calls, and their operators.
RECOMPUTATION = "recomputation"
HIDE, RECOMPUTE = "hide", "recompute"

# Called when such code ends with its operator, the number of calls recorded within it, and whether
# checkpointing is reentrant.
Watcher = Callable[[str, int, bool], None]


@contextmanager
def recomputation_watched(watcher: Watcher, recorded: Callable[[], int]) -> Iterator[None]:
    """Meanwhile, report checkpointed layers to ``watcher``; ``recorded`` counts calls so far."""
    hooks = {HIDE: "_checkpoint_hook", RECOMPUTE: "_recomputation_hook"}
    with ExitStack() as changes:
        for operator, name in hooks.items():
            watched = _watched(getattr(checkpoint, name), operator, watcher, recorded)
            changes.enter_context(_patched(checkpoint, name, watched))
        for method in _reentrant(watcher, recorded):
            of, name = checkpoint.CheckpointFunction, method.__name__
            changes.enter_context(_patched(of, name, staticmethod(method)))
        yield


@contextmanager
def _patched(of: Any, name: str, value: Any) -> Iterator[None]:
    original = vars(of)[name]
    setattr(of, name, value)
    try:
        yield
    finally:
        setattr(of, name, original)


def _watched(hook: Any, operator: str, watcher: Watcher, recorded: Callable[[], int]) -> Any:
    class Watched(hook):
        def __enter__(self) -> Any:
            self.before = recorded()
            return super().__enter__()

        def __exit__(self, *raised: Any) -> Any:
            result = super().__exit__(*raised)
            watcher(operator, recorded() - self.before, False)
            return result

    return Watched


def _reentrant(
    watcher: Watcher, recorded: Callable[[], int]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    original = checkpoint.CheckpointFunction.forward, checkpoint.CheckpointFunction.backward

    def forward(context: Any, *arguments: Any) -> Any:
        before = recorded()
        result = original[0](context, *arguments)
        context.calls = recorded() - before
        watcher(HIDE, context.calls, True)
        return result

    def backward(context: Any, *arguments: Any) -> Any:
        result = original[1](context, *arguments)
        watcher(RECOMPUTE, context.calls, True)
        return result

    return forward, backward


class Recomputation:
    """A call that represents the checkpointing code of ``calls`` calls, in one of the passes.

    It computes nothing; :meth:`taken_ns` times such code.
    """

    def __init__(self, operator: str, calls: int, reentrant: bool) -> None:
        self._operator, self._calls, self._reentrant = operator, calls, reentrant

    def __call__(self, *_: Any) -> tuple[()]:
        """Compute nothing."""
        return ()

    def taken_ns(self) -> int:
        """Return the nanoseconds that checkpointing adds to one pass over tiny layers."""
        plain, hidden = self._passes(self._layers), self._passes(self._checkpointed)
        if self._operator == HIDE:
            return max(0, hidden[0] - plain[0])
        return max(0, hidden[1] - plain[1] - self._recomputed_ns())

    def _layers(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(max(1, self._calls)):
            x = torch.sin(x)
        return x

    def _checkpointed(self, x: torch.Tensor) -> Any:
        return checkpoint.checkpoint(self._layers, x, use_reentrant=self._reentrant)

    def _passes(self, layers: Callable[[torch.Tensor], Any]) -> tuple[int, int]:
        x, clock = torch.ones(1, requires_grad=True), time.perf_counter_ns
        start = clock()
        y = layers(x)
        between = clock()
        y.backward()
        return between - start, clock() - between

    def _recomputed_ns(self) -> int:
        """Return the nanoseconds of the recomputed calls, which are recorded separately."""
        x, sine = torch.ones(1), torch.ops.aten.sin.default
        taken_ns, clock = 0, time.perf_counter_ns
        for _ in range(max(1, self._calls)):
            start = clock()
            sine(x)
            taken_ns += clock() - start
        return taken_ns
