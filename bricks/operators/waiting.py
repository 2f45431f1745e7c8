"""Operators that wait until a device has computed what they return to the host.

Must not know how calls are timed, nor how long a copy takes.
"""

from __future__ import annotations

# The beginnings of ATen's names: results, or their sizes, are values on the host.
_RETURNING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "unique_", "is_nonzero")
# Operators that count the elements of masks among their inputs.
_SELECTING = ("index", "index_put", "_index_put_impl")


def returns_to_host(operator: str) -> bool:
    """Whether calls of ATen's ``operator`` wait for a device."""
    return operator.startswith(_RETURNING)


def selects_by_masks(operator: str) -> bool:
    """Whether calls of ATen's ``operator`` wait for a device if an input is a mask."""
    return operator.rstrip("_") in _SELECTING
