"""The kernels of a step are those of its calls in order."""

from __future__ import annotations

import pytest
from plans import plan

from bricks.compose.device.kernels import device_kernels
from bricks.samples.measurement import Measurement, Round
from bricks.system.accelerator import Accelerator
from bricks.units.sample import Kernel, Sample

CARD = Accelerator("card", 80 << 30, 50 << 20, 132, "9.0")


def walked(key: str, *kernels: Kernel) -> Measurement:
    return Measurement(key, (Round.of([Sample(1e-5, kernels)]),), 0.0)


def test_each_call_has_its_kernels_in_order() -> None:
    called = plan([("a", [0], [1]), ("b", [1], [2]), ("a", [2], [3])])
    own, other = Kernel("p", 1e-6), Kernel("q", 2e-6)
    measured = {"a": walked("a", own), "b": walked("b", other, own)}
    assert device_kernels(called, measured, CARD) == ((own,), (other, own), (own,))


def test_a_call_that_starts_no_kernel_has_none() -> None:
    called = plan([("view", [0], [1])])
    assert device_kernels(called, {"view": walked("view")}, CARD) == ((),)


def test_a_call_without_a_measurement_is_not_guessed() -> None:
    with pytest.raises(KeyError):
        device_kernels(plan([("a", [0], [1])]), {}, CARD)
