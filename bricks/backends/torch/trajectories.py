"""The trajectory of a program's optimiser on functions whose gradients are known by formula.

The optimiser is made anew, of the same class and with the same options, for a parameter of float64.
Must not know what the trajectory should be: the parent compares it with the definition.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from bricks.backends.objectives import OBJECTIVES, SHAPE, START, scale_for, value
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.training_checks import OptimizerTrajectories, Trajectory
from bricks.errors import BackendError

Facts = dict[str, Any]

# Of a group, all else is options.
_PARAMETERS = ("params", "param_names")


def trajectories(program: Program, steps: int) -> OptimizerTrajectories:
    """Points of each function after each of ``steps``, for each group of other options.

    Raises BackendError for an optimiser that has no learning rate, or cannot be made from its
    options.
    """
    optimizer = program.optimizer
    assert optimizer is not None, "only a training step has an optimiser"
    found: list[Trajectory] = []
    seen: list[Facts] = []
    for group in optimizer.param_groups:
        told = plain_options(group)
        if told in seen:
            continue
        seen.append(told)
        scale = scale_for(_learning_rate(optimizer, told))
        for objective in OBJECTIVES:
            with users_errors(program.entry):
                points = _points(optimizer, group, objective, scale, steps)
            found.append(Trajectory(told, objective, scale, points))
    kind = type(optimizer)
    bases = [c.__name__ for c in kind.__mro__ if f"{c.__module__}.".startswith("torch.optim.")]
    return OptimizerTrajectories(kind.__name__, tuple(bases), tuple(found))


def _learning_rate(optimizer: torch.optim.Optimizer, options: Facts) -> float:
    """The option ``lr``, for which the functions are scaled."""
    rate = options.get("lr")
    if not isinstance(rate, int | float):
        raise BackendError(
            f"its optimizer {type(optimizer).__name__} has no learning rate to scale functions for:"
            " let each of its groups have the option lr, a number"
        )
    return float(rate)


def _points(
    like: torch.optim.Optimizer, group: Facts, objective: str, scale: float, steps: int
) -> tuple[tuple[float, ...], ...]:
    x = torch.tensor(START, dtype=torch.float64).reshape(SHAPE).requires_grad_()
    options = {name: held for name, held in group.items() if name not in _PARAMETERS}
    optimizer = _made_anew(like, {**options, "params": [x]})
    points = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            value(objective, x.flatten(), scale).backward()
        optimizer.step()
        points.append(tuple(x.detach().flatten().tolist()))
    return tuple(points)


def _made_anew(like: torch.optim.Optimizer, group: Facts) -> torch.optim.Optimizer:
    """An optimiser of the same class with one group of parameters."""
    kind: Any = type(like)
    taken = inspect.signature(kind.__init__).parameters
    defaults = {name: held for name, held in like.defaults.items() if name in taken}
    try:
        made: torch.optim.Optimizer = kind([group], **defaults)
    except TypeError as exc:
        raise BackendError(
            f"its optimizer {kind.__name__} cannot be made from its options alone ({exc}): let its"
            " arguments have the names of its defaults"
        ) from exc
    return made


def plain_options(group: Mapping[str, Any]) -> Facts:
    """The options of a group of parameters that are numbers, texts, None, or tuples of these."""
    found: Facts = {}
    for name, held in group.items():
        if name in _PARAMETERS:
            continue
        if isinstance(held, torch.Tensor) and held.numel() == 1:
            held = held.item()
        parts = held if isinstance(held, tuple | list) else [held]
        if all(each is None or isinstance(each, bool | int | float | str) for each in parts):
            found[name] = list(parts) if isinstance(held, tuple | list) else held
    return found
