"""Bricks of a few kinds, with latencies on a machine that is as simple as can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
from graphs import Maker, cut

from bricks.decompose.plan import Brick
from bricks.graph.types import TensorType
from bricks.predict.features import CONVOLUTION, BrickFeatures, extract_features
from bricks.predict.predictor import Predictor, learn


def tensor(*shape: int) -> TensorType:
    return TensorType("FLOAT", shape)


def weight(maker: Maker, name: str, *shape: int) -> str:
    return maker.initializer(name, np.zeros(shape, np.float32))


def whole(maker: Maker) -> Brick:
    return cut(maker.graph(), range(len(maker.nodes))).brick


@cache
def unary(op: str, *shape: int) -> Brick:
    maker = Maker()
    maker.outputs.append(
        maker.node(op, [maker.input("x", tensor(*shape))], ["y"], [tensor(*shape)])
    )
    return whole(maker)


@cache
def dense(rows: int, terms: int, columns: int) -> Brick:
    maker = Maker()
    ports = [maker.input("x", tensor(rows, terms)), weight(maker, "w", terms, columns)]
    maker.outputs.append(maker.node("MatMul", ports, ["y"], [tensor(rows, columns)]))
    return whole(maker)


@cache
def conv(
    channels: int,
    outputs: int,
    side: int,
    taps: int = 3,
    group: int = 1,
    dilation: int = 1,
    domain: str = "",
) -> Brick:
    maker = Maker()
    data = maker.input("x", tensor(1, channels, side, side))
    ports = [data, weight(maker, "w", outputs, channels // group, taps, taps)]
    kinds = [tensor(1, outputs, side, side)]
    how = {"group": group, "pads": [taps // 2 * dilation] * 4, "dilations": [dilation] * 2}
    maker.outputs.append(maker.node("Conv", ports, ["y"], kinds, domain=domain, **how))
    return whole(maker)


def traits_of(bricks: Iterable[Brick]) -> dict[str, BrickFeatures]:
    return {brick.key: extract_features(brick) for brick in bricks}


@cache
def mixture() -> Mapping[str, BrickFeatures]:
    """A few hundred bricks of three kinds."""
    sides = (7, 14, 28, 56)
    return traits_of(
        [
            *(conv(c, o, s) for c in (8, 16, 32, 64) for o in (16, 32, 48, 64) for s in sides),
            *(dense(r, t, c) for r in (1, 16, 64) for t in (64, 100, 256) for c in (64, 200, 512)),
            *(unary(op, n) for op in ("Relu", "Exp") for n in range(1000, 60_000, 1500)),
        ]
    )


def ideal_s(t: BrickFeatures) -> float:
    """A machine that is as simple as can be, but for convolutions of few channels."""
    rate = 2e10 * (1 if t.kind != CONVOLUTION else 0.3 + t.sizes[2] / 8)
    moved = t.read_bytes + t.written_bytes + t.weight_bytes
    return 3e-6 + t.flops / rate + moved / 5e9


def latencies(features: Mapping[str, BrickFeatures]) -> dict[str, float]:
    return {key: ideal_s(features[key]) for key in sorted(features)}


def groups_of(keys: Iterable[str], count: int = 20) -> dict[str, set[str]]:
    ordered = sorted(keys)
    return {f"family {i}": set(ordered[i::count]) for i in range(count)}


def learned(features: Mapping[str, BrickFeatures], latency_s: Mapping[str, float]) -> Predictor:
    found = learn(features, latency_s, groups_of(features))
    assert found is not None
    return found


def halves(
    features: Mapping[str, BrickFeatures],
) -> tuple[dict[str, BrickFeatures], dict[str, BrickFeatures]]:
    keys = sorted(features)
    return {k: features[k] for k in keys[::2]}, {k: features[k] for k in keys[1::2]}


@cache
def blockwise(rows: int, terms: int, columns: int, bits: int = 8, level: int = 4) -> Brick:
    """A product whose weights are blocks of a few bits, with a scale each."""
    maker = Maker()
    blocks, block = terms // 32, 32 * bits // 8
    ports = [
        maker.input("x", tensor(rows, terms)),
        maker.initializer("w", np.zeros((columns, blocks, block), np.uint8)),
        weight(maker, "scales", columns * blocks),
    ]
    how = {"K": terms, "N": columns, "bits": bits, "block_size": 32, "accuracy_level": level}
    kinds = [tensor(rows, columns)]
    maker.outputs.append(
        maker.node("MatMulNBits", ports, ["y"], kinds, domain="com.microsoft", **how)
    )
    return whole(maker)
