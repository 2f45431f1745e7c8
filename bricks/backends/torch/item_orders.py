"""In which order data yield their items: a number for each row of each batch, epoch by epoch.

Items are told apart by a digest of what they hold, so that nothing need be known of a sampler. The
first dimension of a batch counts its items. Must not know which order is a good one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.training_checks import ItemOrders
from bricks.errors import BackendError

# More items than this are not hashed: a minute's work.
MAX_ITEMS = 2_000_000


def item_orders(program: Program, epochs: int) -> ItemOrders:
    """The numbers of the items of each of ``epochs``.

    Items that hold the same have the same number. Fewer epochs are looked at where all of them
    would be more than MAX_ITEMS. The data set is ``data.dataset``, if its items can be recognised
    in the batches.
    """
    data = program.data
    assert data is not None
    numbers: dict[bytes, int] = {}
    with users_errors(program.entry):
        held = _data_set(data)
    data_set = [numbers.setdefault(each, len(numbers)) for each in held]
    orders: list[list[int]] = []
    for done in range(epochs):
        if orders and (done + 1) * len(orders[0]) > MAX_ITEMS:
            break
        order: list[int] = []
        with users_errors(program.entry):
            for batch in data:
                digests = _digests(program.entry, batch)
                if digests is None:
                    return ItemOrders(reason="the tensors of a batch differ in their length")
                order += [numbers.setdefault(each, len(numbers)) for each in digests]
                if len(order) > MAX_ITEMS:
                    return ItemOrders(reason=f"an epoch has more than {MAX_ITEMS} items")
        orders.append(order)
    recognised = sum(number < len(held) for number in orders[0]) if orders else 0
    known = held and recognised == len(orders[0])
    return ItemOrders(tuple(map(tuple, orders)), tuple(data_set) if known else None)


def _data_set(data: Any) -> list[bytes]:
    """A digest of each item of a loader's data set; none where it has no such items."""
    data_set: Any = getattr(data, "dataset", None)
    if not hasattr(data_set, "__getitem__") or not hasattr(data_set, "__len__"):
        return []
    if len(data_set) > MAX_ITEMS:
        return []
    found = []
    for number in range(len(data_set)):
        item = data_set[number]
        tensors = item if isinstance(item, tuple | list) else [item]
        if not all(isinstance(each, torch.Tensor) for each in tensors):
            return []
        found.append(_digest([row for each in tensors for row in _rows(each.unsqueeze(0))]))
    return found


def _digests(entry: str, batch: Any) -> list[bytes] | None:
    """A digest of each row over all tensors of a batch; None where they have no common length."""
    tensors = list(batch) if isinstance(batch, tuple | list) else [batch]
    if not tensors or not all(isinstance(each, torch.Tensor) for each in tensors):
        raise BackendError(f"{entry}: its data yield no tuples of tensors")
    lengths = {each.shape[0] if each.dim() else 0 for each in tensors}
    if len(lengths) != 1 or 0 in lengths:
        return None
    rows = [_rows(each) for each in tensors]
    return [_digest(parts) for parts in zip(*rows, strict=True)]


def _rows(tensor: torch.Tensor) -> Sequence[bytes]:
    plain = tensor.detach().contiguous().reshape(len(tensor), -1).view(torch.uint8).numpy()
    return [row.tobytes() for row in plain]


def _digest(parts: Sequence[bytes]) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=12).digest()
