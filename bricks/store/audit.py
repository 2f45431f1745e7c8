"""Checks of ``verify``: rows against their checksums, their keys and one another.

Each problem is one line that names the row. Nothing is repaired here. Must not know how the key of
a brick is computed; the caller passes ``rekey``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from bricks.decompose.plan import Brick
from bricks.errors import StoreError
from bricks.store.database_file import UNREADABLE, as_far_as_readable, integrity_problems
from bricks.store.layout import DONE, FAILED, OPEN
from bricks.store.rows import (
    TARGETS,
    brick_of,
    checksum_matches,
    decoding,
    network_of,
    plan_of,
    round_of,
    system_of,
    target_of,
    weight_bytes_of,
)

if TYPE_CHECKING:
    from bricks.store.views import CacheView, Row
    from bricks.system.network import NetworkFingerprint
    from bricks.system.target import System, Target

Rekey = Callable[[Brick], str]

# Keys of bricks start so; models and probes, which are measured too, have no row of their own.
BRICK_PREFIX = "b1-"

CHANGED = "it is not as it was written"


def problems(view: CacheView, rekey: Rekey | None) -> Iterator[str]:
    """All problems, one line each; an unreadable row does not hide problems of other rows."""
    yield from integrity_problems(view)
    known: set[str] | None = None
    with suppress(*UNREADABLE):
        known = {row.key for row in view.rows("SELECT key FROM bricks")}
    for table, lines in (
        ("systems", _of_systems(view)),
        ("networks", _of_networks(view)),
        ("bricks", _of_bricks(view, rekey)),
        ("plans", _of_plans(view, known)),
        ("measurements", _of_measurements(view, known)),
        ("rounds", _of_rounds(view)),
    ):
        yield from as_far_as_readable(table, lines)


def _of_systems(view: CacheView) -> Iterator[str]:
    of_systems = view.rows("SELECT * FROM systems ORDER BY key")
    yield from _of_keys(of_systems, "system", system_of, "its identity does")
    facts = "its system and runtime do"
    yield from _of_keys(view.rows(f"{TARGETS} ORDER BY targets.key"), "target", target_of, facts)


def _of_networks(view: CacheView) -> Iterator[str]:
    rows = list(view.rows("SELECT * FROM networks ORDER BY key"))
    yield from _of_keys(rows, "network", network_of, "its identity does")
    known = {row.key for row in rows}
    for row in view.rows("SELECT * FROM targets ORDER BY key"):
        network = None
        with suppress(ValueError, AttributeError):  # a damaged runtime is reported with its target
            network = json.loads(row.runtime).get("network")
        if network is not None and network not in known:
            yield f"target {row.key}: its network {network} is unknown"


def _of_keys(
    rows: Iterable[Row],
    kind: str,
    decode: Callable[[Row], System | Target | NetworkFingerprint],
    facts: str,
) -> Iterator[str]:
    """Rows that do not decode, or whose ``facts`` (in words) do not give their key."""
    for row in rows:
        try:
            with decoding(f"{kind} {row.key}"):
                if decode(row).key != row.key:
                    yield f"{kind} {row.key}: {facts} not give this key"
        except StoreError as exc:
            yield str(exc)


def _of_bricks(view: CacheView, rekey: Rekey | None) -> Iterator[str]:
    # Models may be large: they are read one by one, not all at once.
    for row in view.rows("SELECT * FROM bricks ORDER BY key"):
        if not row.key.startswith(BRICK_PREFIX):
            yield f"brick {row.key}: its key does not start with {BRICK_PREFIX}"
        try:
            with decoding(f"brick {row.key}"):
                brick = brick_of(row, check=False)
                weight_bytes = weight_bytes_of(brick)
        except StoreError as exc:
            yield str(exc)
            continue
        if not checksum_matches(row):
            yield f"brick {row.key}: {CHANGED}"
        if not brick.model:
            yield f"brick {row.key}: its model is empty"
        if weight_bytes != row.weight_bytes:
            yield f"brick {row.key}: its weights take {weight_bytes} bytes, not {row.weight_bytes}"
        if row.flops is not None and row.flops < 0:
            yield f"brick {row.key}: its flops are negative"
        if rekey is None:
            continue
        try:
            key = rekey(brick)
        except Exception as exc:  # a damaged model may break the caller's reader in any way
            yield f"brick {brick.key}: its key cannot be recomputed ({type(exc).__name__})"
            continue
        if key != brick.key:
            yield f"brick {brick.key}: its model gives the key {key}"


def _of_plans(view: CacheView, known: set[str] | None) -> Iterator[str]:
    for row in view.rows("SELECT * FROM plans ORDER BY id"):
        name = f"plan {row.digest[:16]} ({row.granularity}, {row.target_key})"
        try:
            with decoding(name):
                plan = plan_of(row, check=False)
                keys = plan.keys
        except StoreError as exc:
            yield str(exc)
            continue
        if not checksum_matches(row):
            yield f"{name}: {CHANGED}"
        if (plan.digest, plan.granularity) != (row.digest, row.granularity):
            yield f"{name}: its text is of {plan.digest[:16]} ({plan.granularity})"
        missing = [key for key in keys if known is not None and key not in known]
        if missing:
            yield f"{name}: {len(missing)} of its bricks are unknown, {missing[0]} first"


def _of_measurements(view: CacheView, known: set[str] | None) -> Iterator[str]:
    statement = "SELECT measurement_id, count(*) AS count FROM rounds GROUP BY measurement_id"
    counts: dict[int, int] | None = None
    with suppress(*UNREADABLE):
        counts = {number: of for number, of in view.rows(statement)}
    for row in view.rows("SELECT * FROM measurements ORDER BY id"):
        name = f"measurement of {row.brick_key} on {row.target_key}"
        has_row = row.brick_key.startswith(BRICK_PREFIX)
        if known is not None and has_row and row.brick_key not in known:
            yield f"{name}: the brick is unknown"
        if row.state not in (OPEN, DONE, FAILED):
            yield f"{name}: its state {row.state!r} is unknown"
        count = None if counts is None else counts.get(row.id, 0)
        if row.state == DONE and count == 0:
            yield f"{name}: it is finished and has no samples"
        elif count is not None and count != row.round_count:
            yield f"{name}: it has {count} of its {row.round_count} rounds"
        if row.state == FAILED and not row.reason:
            yield f"{name}: it failed without a reason"


def _of_rounds(view: CacheView) -> Iterator[str]:
    statement = """
        SELECT rounds.*, measurements.brick_key, measurements.target_key
        FROM rounds JOIN measurements ON measurements.id = rounds.measurement_id
        ORDER BY rounds.measurement_id, rounds.number
    """
    for row in view.rows(statement):
        name = f"measurement of {row.brick_key} on {row.target_key}, round {row.number}"
        try:
            with decoding(name):
                samples = round_of(row, check=False).host_s
        except StoreError as exc:
            yield str(exc)
            continue
        if not checksum_matches(row):
            yield f"{name}: {CHANGED}"
        if len(samples) != row.sample_count:
            yield f"{name}: it has {len(samples)} samples, not {row.sample_count}"
