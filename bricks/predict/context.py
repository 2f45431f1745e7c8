"""Contexts of bricks in models, which decide how much of a brick's data is cached.

The same brick takes longer in a model that touches much memory in each run, and in a model where it
occurs only once, because less of the runtime's code and data, of its weights and of its values is
cached. Must not know latencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.predict.features import BrickFeatures, Context

if TYPE_CHECKING:
    from bricks.decompose.occurrence import Usage


def contexts(
    models: Iterable[Mapping[str, Usage]],
    features: Mapping[str, BrickFeatures],
    unseen_bytes: int = 0,
) -> dict[str, Context]:
    """Return the context of each brick of ``models``, each a :attr:`Plan.usage`.

    Of several models, the context is in the one of whose work the brick is the largest share,
    because the brick is measured in this model. Bricks without ``features`` are ignored. Each model
    has ``unseen_bytes`` of weights besides those of its bricks.
    """
    by_key: dict[str, Context] = {}
    for usage in models:
        for key, context in _of_model(usage, features, unseen_bytes).items():
            by_key[key] = context.prevailing(by_key.get(key))
    return by_key


def in_context(
    features: Mapping[str, BrickFeatures], models: Iterable[Mapping[str, Usage]]
) -> dict[str, BrickFeatures]:
    """Return ``features`` with the contexts of ``models``; other bricks keep their context."""
    by_key = contexts(models, features)
    return {key: replace(t, context=by_key.get(key, t.context)) for key, t in features.items()}


def slowed(features: Mapping[str, BrickFeatures], slowness: float) -> dict[str, BrickFeatures]:
    """Return ``features`` with this slowness of the host, which some learned files distinguish."""
    if not slowness:
        return dict(features)
    return {
        key: replace(t, context=replace(t.context, slowness=slowness))
        for key, t in features.items()
    }


def _of_model(
    usage: Mapping[str, Usage], features: Mapping[str, BrickFeatures], unseen_bytes: int
) -> dict[str, Context]:
    known = {key: features[key] for key in usage if key in features}
    weight_bytes = sum(usage[key].copies * t.weight_bytes for key, t in known.items())
    # Twice the values of the largest brick: about what is live at most, and what was live before.
    live_bytes = 2 * max((t.read_bytes + t.written_bytes for t in known.values()), default=0.0)
    working_set_bytes = weight_bytes + unseen_bytes + live_bytes
    works = {key: usage[key].occurrences * t.work_bytes for key, t in known.items()}
    all_work = sum(works.values())
    return {
        key: Context(working_set_bytes, usage[key].occurrences, works[key] / all_work)
        for key in known
    }
