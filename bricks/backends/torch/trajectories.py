"""The trajectory of a program's optimiser on functions with gradients by formula.

An optimiser of the same class and options is made for a parameter of float64. Must not know the
right trajectory: the parent compares with the definition of the optimiser.
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

# The entries of a group that are no options.
_PARAMETERS = ("params", "param_names")


def trajectories(program: Program, steps: int) -> OptimizerTrajectories:
    """Return the points of each function after each step, for each group of distinct options.

    Raises :class:`BackendError` for an optimiser without a learning rate, or one that cannot be
    made from its options.
    """
    optimizer = program.optimizer
    assert optimizer is not None, "only a training step has an optimiser"
    paths: list[Trajectory] = []
    seen: list[Facts] = []
    for group in optimizer.param_groups:
        options = plain_options(group)
        if options in seen:
            continue
        seen.append(options)
        scale = scale_for(_learning_rate(optimizer, options))
        for objective in OBJECTIVES:
            with users_errors(program.entry):
                points = _points(optimizer, group, objective, scale, steps)
            paths.append(Trajectory(options, objective, scale, points))
    kind = type(optimizer)
    bases = [c.__name__ for c in kind.__mro__ if f"{c.__module__}.".startswith("torch.optim.")]
    return OptimizerTrajectories(kind.__name__, tuple(bases), tuple(paths))


def _learning_rate(optimizer: torch.optim.Optimizer, options: Facts) -> float:
    """Return the option ``lr``, for which the functions are scaled."""
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
    options = {name: value for name, value in group.items() if name not in _PARAMETERS}
    optimizer = _copy(like, {**options, "params": [x]})
    points = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            value(objective, x.flatten(), scale).backward()
        optimizer.step()
        points.append(tuple(x.detach().flatten().tolist()))
    return tuple(points)


def _copy(like: torch.optim.Optimizer, group: Facts) -> torch.optim.Optimizer:
    """Make an optimiser of the same class with one group of parameters."""
    kind: Any = type(like)
    parameters = inspect.signature(kind.__init__).parameters
    defaults = {name: value for name, value in like.defaults.items() if name in parameters}
    try:
        made: torch.optim.Optimizer = kind([group], **defaults)
    except TypeError as exc:
        raise BackendError(
            f"its optimizer {kind.__name__} cannot be made from its options alone ({exc}): let its"
            " arguments have the names of its defaults"
        ) from exc
    return made


def plain_options(group: Mapping[str, Any]) -> Facts:
    """Return the options of a group that are numbers, strings, None, or tuples of them."""
    options: Facts = {}
    for name, option in group.items():
        if name in _PARAMETERS:
            continue
        if isinstance(option, torch.Tensor) and option.numel() == 1:
            option = option.item()
        parts = option if isinstance(option, tuple | list) else [option]
        if all(part is None or isinstance(part, bool | int | float | str) for part in parts):
            options[name] = list(parts) if isinstance(option, tuple | list) else option
    return options
