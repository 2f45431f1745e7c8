"""What servers in tests know: a cache of this host, and a published system that is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from factories import conv_net, save
from rough import ROUGH

import bricks.session.workspace
from bricks import Bench
from bricks.analysis.publishing import Validated, publish
from bricks.session.options import Options
from bricks.system import fingerprint

HOME = fingerprint()
# Its instructions are those of this host, so models decomposed here are executed there alike.
BIG = replace(HOME, name="big", identity={**HOME.identity, "logical_cpus": 97}, price_per_hour=2.0)
# Nobody knows what it executes.
ARM = replace(
    HOME, name="arm", identity={**HOME.identity, "architecture": "aarch64", "logical_cpus": 98}
)


def make_known(folder: Path) -> dict[str, str]:
    """Measure a model here, and publish others; the options and variables of a server there."""
    path = save(conv_net(), folder, "conv.onnx")
    for threads in (1, 2):
        options = Options(runtime="fake", threads=threads, conditions=ROUGH)
        with Bench(folder / "cache", options, published=False) as bench:
            bench.measure([bench.read(path)])
    place = folder / "published"
    place.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for system in (BIG, ARM):
            patch.setattr(bricks.session.workspace, "fingerprint", lambda system=system: system)
            own = folder / system.name
            options = Options(runtime="fake", threads=1, conditions=ROUGH)
            with Bench(own, options, published=False) as bench:
                bench.measure([bench.read(path)])
                if system.price_per_hour is not None:
                    bench.store.systems.describe(system.key, price_per_hour=system.price_per_hour)
                target = bench.target.key
            publish(own, [Validated(target, {"date": "2026-01-01"})], place)
    return {"BRICKS_PUBLISHED": str(place)}
