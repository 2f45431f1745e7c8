"""Optimisers by their definitions, in NumPy and float64, to compare a runtime's own with.

Plain formulas of the papers, in the variants that PyTorch documents: SGD with momentum (Sutskever
et al., 2013), Adagrad (Duchi et al., 2011), RMSprop (Hinton, 2012; centred: Graves, 2013), Adam
(Kingma and Ba, 2015; amsgrad: Reddi et al., 2018), AdamW (Loshchilov and Hutter, 2019), Adafactor
(Shazeer and Stern, 2018). Must not use the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bricks.backends.training_checks import SHAPE, START, objective_gradient

Options = Mapping[str, Any]
# The point after a step, from the point before it and its gradient.
Update = Callable[[np.ndarray, np.ndarray], np.ndarray]

# Options that choose an implementation, or that schedules leave: no formula depends on them.
_WITHOUT_EFFECT = frozenset(("foreach", "fused", "capturable", "differentiable", "initial_lr"))


def sgd(options: Options) -> Update:
    """Gradient descent, with momentum, dampening and Nesterov's variant."""
    lr, momentum, damping = _numbers(options, "lr", "momentum", "dampening")
    velocity: np.ndarray | None = None

    def update(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        nonlocal velocity
        slope = _decayed(x, slope, options)
        if not momentum:
            return x - lr * slope
        if velocity is None:
            velocity = slope
        else:
            velocity = momentum * velocity + (1 - damping) * slope
        return x - lr * (slope + momentum * velocity if options["nesterov"] else velocity)

    return update


def adagrad(options: Options) -> Update:
    """Steps divided by the root of the sum of all squared gradients."""
    lr, slowing, eps, begin = _numbers(
        options, "lr", "lr_decay", "eps", "initial_accumulator_value"
    )
    total = np.full(len(START), begin)
    steps = 0

    def update(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        nonlocal total, steps
        slope = _decayed(x, slope, options)
        rate = lr / (1 + steps * slowing)
        steps += 1
        total = total + slope**2
        root: np.ndarray = np.sqrt(total)
        return x - rate * slope / (root + eps)

    return update


def rmsprop(options: Options) -> Update:
    """Steps divided by the root of the mean of squared gradients, which decays."""
    lr, alpha, momentum, eps = _numbers(options, "lr", "alpha", "momentum", "eps")
    square, mean, velocity = (np.zeros(len(START)) for _ in range(3))

    def update(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        nonlocal square, mean, velocity
        slope = _decayed(x, slope, options)
        square = alpha * square + (1 - alpha) * slope**2
        variance = square
        if options["centered"]:
            mean = alpha * mean + (1 - alpha) * slope
            variance = square - mean**2
        step = slope / (np.sqrt(variance) + eps)
        if not momentum:
            return x - lr * step
        velocity = momentum * velocity + step
        return x - lr * velocity

    return update


def adam(options: Options, *, decoupled: bool = False) -> Update:
    """Steps by moments of the gradient, corrected for their beginning at zero.

    Weight decay is added to the gradient, or with ``decoupled`` shrinks the point by itself.
    """
    lr, decay, eps = _numbers(options, "lr", "weight_decay", "eps")
    beta1, beta2 = map(float, options["betas"])
    first, second, largest = (np.zeros(len(START)) for _ in range(3))
    steps = 0

    def update(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        nonlocal first, second, largest, steps
        steps += 1
        if decoupled:
            x = x * (1 - lr * decay)
            slope = -slope if options["maximize"] else slope
        else:
            slope = _decayed(x, slope, options)
        first = beta1 * first + (1 - beta1) * slope
        second = beta2 * second + (1 - beta2) * slope**2
        largest = np.maximum(largest, second)
        used = largest if options["amsgrad"] else second
        root = np.sqrt(used / (1 - beta2**steps))
        return x - lr * first / (1 - beta1**steps) / (root + eps)

    return update


def adamw(options: Options) -> Update:
    """Adam with decoupled weight decay."""
    return adam(options, decoupled=True)


def adafactor(options: Options) -> Update:
    """Steps divided by the root of a mean of squared gradients that is kept by rows and columns.

    Relative to the size of the parameter, and clipped by their own.
    """
    lr, slowing, decay, clip = _numbers(options, "lr", "beta2_decay", "weight_decay", "d")
    least, smallest = options["eps"]
    eps = float(np.finfo(np.float64).eps) if least is None else float(least)
    rows, columns = np.zeros((SHAPE[0], 1)), np.zeros((1, SHAPE[1]))
    steps = 0

    def update(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        nonlocal rows, columns, steps
        steps += 1
        slope = (-slope if options["maximize"] else slope).reshape(SHAPE)
        new = steps**slowing
        rate = min(lr, 1 / np.sqrt(steps)) * max(smallest, np.sqrt(np.mean(x**2)))
        rows = (1 - new) * rows + new * np.mean(slope**2, axis=1, keepdims=True)
        columns = (1 - new) * columns + new * np.mean(slope**2, axis=0, keepdims=True)
        variance = rows @ columns / max(float(rows.mean()), eps)
        step = slope / np.sqrt(np.maximum(variance, eps**2))
        step /= max(1.0, float(np.sqrt(np.mean(step**2))) / clip)
        return np.asarray(x * (1 - lr * decay) - rate * step.reshape(-1))

    return update


def _decayed(x: np.ndarray, slope: np.ndarray, options: Options) -> np.ndarray:
    """The gradient to descend: with weight decay, and negated if the objective is maximised."""
    slope = -slope if options["maximize"] else slope
    (decay,) = _numbers(options, "weight_decay")
    return slope + decay * x


def _numbers(options: Options, *names: str) -> list[float]:
    return [float(options[name]) for name in names]


_ADAM = {"lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay"}
# By the names of the classes of torch.optim: the definition, and the options that it knows.
_REFERENCES: Mapping[str, tuple[Callable[[Options], Update], set[str]]] = {
    "SGD": (sgd, {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"}),
    "Adagrad": (
        adagrad,
        {"lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize"},
    ),
    "RMSprop": (
        rmsprop, {"lr", "momentum", "alpha", "eps", "centered", "weight_decay", "maximize"},
    ),
    "Adam": (adam, _ADAM),
    "AdamW": (adamw, _ADAM),
    "Adafactor": (adafactor, {"lr", "beta2_decay", "eps", "d", "weight_decay", "maximize"}),
}  # fmt: skip


def reference(bases: Sequence[str]) -> str | None:
    """The first of the class names that has a definition here; None if none has."""
    return next((name for name in bases if name in _REFERENCES), None)


def unknown_option(name: str, options: Options) -> str | None:
    """An option that the definition called ``name`` does not know; None if it knows all."""
    known = _REFERENCES[name][1] | _WITHOUT_EFFECT
    unknown = sorted(options.keys() - known)
    if not unknown and name == "Adam" and options.get("decoupled_weight_decay"):
        return "decoupled_weight_decay"
    return unknown[0] if unknown else None


def trajectory(name: str, options: Options, objective: str, scale: float, steps: int) -> np.ndarray:
    """The points after each of ``steps`` steps by the definition ``name``: shape (steps, 8).

    ``objective`` and ``scale`` choose a function of :mod:`bricks.backends.training_checks`.
    """
    update = _REFERENCES[name][0](options)
    x = np.array(START)
    points = []
    for _ in range(steps):
        x = update(x, objective_gradient(objective, x, scale))
        points.append(x)
    return np.array(points)
