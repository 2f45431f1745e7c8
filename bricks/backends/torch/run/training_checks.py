"""Checks of a program's training: the trajectory of its optimiser, and the order of its data.

For a trajectory on functions with gradients by formula, an optimiser of the same class and options
is made for a parameter of float64. The order in which data yield their items is a number for each
row of each batch, by epoch. Items are identified by a digest of their contents, independently of
the sampler. The first dimension of a batch counts its items. Must not know the right trajectory or
order: the parent compares with the definition of the optimiser.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.training_checks import (
    OBJECTIVES,
    SHAPE,
    START,
    ItemOrders,
    OptimizerTrajectories,
    Trajectory,
    objective_value,
    scale_for,
)
from bricks.errors import BackendError

Facts = dict[str, Any]

# The entries of a group that are no options.
_PARAMETERS = ("params", "param_names")

# More items are not hashed: these take a minute.
MAX_ITEMS = 2_000_000


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
        rate = options.get("lr")
        if not isinstance(rate, int | float):
            raise BackendError(
                f"its optimizer {type(optimizer).__name__} has no learning rate to scale functions"
                " for: let each of its groups have the option lr, a number"
            )
        scale = scale_for(float(rate))
        for objective in OBJECTIVES:
            with users_errors(program.entry):
                points = _points(optimizer, group, objective, scale, steps)
            paths.append(Trajectory(options, objective, scale, points))
    kind = type(optimizer)
    bases = [c.__name__ for c in kind.__mro__ if f"{c.__module__}.".startswith("torch.optim.")]
    return OptimizerTrajectories(kind.__name__, tuple(bases), tuple(paths))


def _points(
    like: torch.optim.Optimizer, group: Facts, objective: str, scale: float, steps: int
) -> tuple[tuple[float, ...], ...]:
    x = torch.tensor(START, dtype=torch.float64).reshape(SHAPE).requires_grad_()
    options = {name: value for name, value in group.items() if name not in _PARAMETERS}
    kind: Any = type(like)
    parameters = inspect.signature(kind.__init__).parameters
    defaults = {name: value for name, value in like.defaults.items() if name in parameters}
    try:
        optimizer: torch.optim.Optimizer = kind([{**options, "params": [x]}], **defaults)
    except TypeError as exc:
        raise BackendError(
            f"its optimizer {kind.__name__} cannot be made from its options alone ({exc}): let"
            " its arguments have the names of its defaults"
        ) from exc
    points = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            objective_value(objective, x.flatten(), scale).backward()
        optimizer.step()
        points.append(tuple(x.detach().flatten().tolist()))
    return tuple(points)


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


def item_orders(program: Program, epochs: int) -> ItemOrders:
    """Return the numbers of the items of each of ``epochs``; equal items have equal numbers.

    Fewer epochs are read where all would have more than ``MAX_ITEMS`` items. The data set is
    ``data.dataset``, if its items are recognised in the batches.
    """
    data = program.data
    assert data is not None
    numbers: dict[bytes, int] = {}
    with users_errors(program.entry):
        digests = _item_digests(data)
    data_set = [numbers.setdefault(digest, len(numbers)) for digest in digests]
    orders: list[list[int]] = []
    for done in range(epochs):
        if orders and (done + 1) * len(orders[0]) > MAX_ITEMS:
            break
        order: list[int] = []
        with users_errors(program.entry):
            for batch in data:
                rows = _row_digests(program.entry, batch)
                if rows is None:
                    return ItemOrders(reason="the tensors of a batch differ in their length")
                order += [numbers.setdefault(digest, len(numbers)) for digest in rows]
                if len(order) > MAX_ITEMS:
                    return ItemOrders(reason=f"an epoch has more than {MAX_ITEMS} items")
        orders.append(order)
    recognised = sum(number < len(digests) for number in orders[0]) if orders else 0
    known = digests and recognised == len(orders[0])
    return ItemOrders(tuple(map(tuple, orders)), tuple(data_set) if known else None)


def _item_digests(data: Any) -> list[bytes]:
    data_set: Any = getattr(data, "dataset", None)
    if not hasattr(data_set, "__getitem__") or not hasattr(data_set, "__len__"):
        return []
    if len(data_set) > MAX_ITEMS:
        return []
    digests = []
    for number in range(len(data_set)):
        item = data_set[number]
        tensors = item if isinstance(item, tuple | list) else [item]
        if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            return []
        digests.append(_digest([row for t in tensors for row in _rows(t.unsqueeze(0))]))
    return digests


def _row_digests(entry: str, batch: Any) -> list[bytes] | None:
    tensors = list(batch) if isinstance(batch, tuple | list) else [batch]
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise BackendError(f"{entry}: its data yield no tuples of tensors")
    lengths = {tensor.shape[0] if tensor.dim() else 0 for tensor in tensors}
    if len(lengths) != 1 or 0 in lengths:
        return None
    rows = [_rows(tensor) for tensor in tensors]
    return [_digest(parts) for parts in zip(*rows, strict=True)]


def _rows(tensor: torch.Tensor) -> Sequence[bytes]:
    plain = tensor.detach().contiguous().reshape(len(tensor), -1).view(torch.uint8).numpy()
    return [row.tobytes() for row in plain]


def _digest(parts: Sequence[bytes]) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=12).digest()
