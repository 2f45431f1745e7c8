"""The order in which data yield their items: a number for each row of each batch, by epoch.

Items are identified by a digest of their contents, independently of the sampler. The first
dimension of a batch counts its items. Must not know which order is a good one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.training_checks import ItemOrders
from bricks.errors import BackendError

# More items are not hashed: these take a minute.
MAX_ITEMS = 2_000_000


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
    """Return a digest of each item of a loader's data set; none unless items are tensors."""
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
    """Return a digest of each row over all tensors of a batch; None unless lengths are equal."""
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
