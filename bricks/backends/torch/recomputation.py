"""What a step does beside its calls where it computes activations again in its backward pass.

``torch.utils.checkpoint`` runs Python code around the layers whose activations it does not keep:
once in the forward pass, where it hides them, and once in the backward pass, where it runs the
layers again. No dispatcher sees that code, which takes as long as dozens of small calls. So it is
recorded as calls of its own, and these are timed by checkpointing tiny layers. Must not know how
calls are recorded.
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

# Told of each piece of such code when it ends: its operator, how many calls were recorded within
# it, and whether checkpointing is reentrant.
Watcher = Callable[[str, int, bool], None]


@contextmanager
def recomputation_watched(watcher: Watcher, recorded: Callable[[], int]) -> Iterator[None]:
    """Meanwhile, ``watcher`` is told of checkpointed layers; ``recorded`` counts calls so far."""
    hooks = {HIDE: "_checkpoint_hook", RECOMPUTE: "_recomputation_hook"}
    with ExitStack() as changes:
        for operator, name in hooks.items():
            watched = _watched(getattr(checkpoint, name), operator, watcher, recorded)
            changes.enter_context(_changed(checkpoint, name, watched))
        for method in _reentrant(watcher, recorded):
            of, name = checkpoint.CheckpointFunction, method.__name__
            changes.enter_context(_changed(of, name, staticmethod(method)))
        yield


@contextmanager
def _changed(of: Any, name: str, value: Any) -> Iterator[None]:
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
    """The two methods of the function that stands for checkpointed layers, each watched."""
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
    """A call that stands for the code around ``calls`` checkpointed calls, in one of the passes.

    It computes nothing. :meth:`taken_ns` is how long such code takes.
    """

    def __init__(self, operator: str, calls: int, reentrant: bool) -> None:
        self._operator, self._calls, self._reentrant = operator, calls, reentrant

    def __call__(self, *_: Any) -> tuple[()]:
        """Nothing."""
        return ()

    def taken_ns(self) -> int:
        """Nanoseconds that checkpointing tiny layers adds to one pass over them, without them."""
        plain, hidden = self._passes(self._layers), self._passes(self._checkpointed)
        if self._operator == HIDE:
            return max(0, hidden[0] - plain[0])
        return max(0, hidden[1] - plain[1] - self._alone())

    def _layers(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(max(1, self._calls)):
            x = torch.sin(x)
        return x

    def _checkpointed(self, x: torch.Tensor) -> Any:
        return checkpoint.checkpoint(self._layers, x, use_reentrant=self._reentrant)

    def _passes(self, layers: Callable[[torch.Tensor], Any]) -> tuple[int, int]:
        """Nanoseconds of the forward pass and of the backward pass."""
        x, clock = torch.ones(1, requires_grad=True), time.perf_counter_ns
        start = clock()
        y = layers(x)
        between = clock()
        y.backward()
        return between - start, clock() - between

    def _alone(self) -> int:
        """Nanoseconds of the calls that run again, which were recorded by themselves."""
        x, sine, taken, clock = torch.ones(1), torch.ops.aten.sin.default, 0, time.perf_counter_ns
        for _ in range(max(1, self._calls)):
            start = clock()
            sine(x)
            taken += clock() - start
        return taken
