"""The protocol of supervisor and worker: JSON objects, one a line, over two pipes.

Nothing is pickled, so a worker may live in another Python environment. A request is
``{"op": NAME, …}``; its answer is ``{"ok": {…}}`` or ``{"error": TEXT}``. While a
request is being worked on, ``{"at": N}`` lines may come first: step N is about to run.

    hello    backend, threads, seed, memory_bytes?,    → pid
             workers?, timing?, optimization?
    limit    memory_bytes                              → {}
    executed model, key?                               → model, types, in_place, observed, groups,
                                                         notes, signs: {value: [negative, changes]},
                                                         rewritten_bytes
    record   entry, folder, options                    → model
    source   name, model                               → model, types, observed
    values   model, names                              → values: {name: [number…]}
    region   size_bytes, eviction_bytes?               → {}
    load     id, key, model, optimize, streams?        → {}
    load_all loads: [the fields of load…]              → load_s: [seconds…]
    place    place, id, inputs, outputs, repeated?     → {}
    walk     steps: [[place, timed]…], passes,         → samples: [[seconds…] per step],
             announce, eviction_bytes?,                   reference_s, reference_end_s,
             region_bytes?, memory?, served_at?           waited_share, eviction_short,
                                                         apart: [number of step…],
                                                         idle_s: [seconds… per pass]
    reference {}                                       → reference_s
    unload   {}                                        → {}
    profile  key, model, streams?                      → runs_s, typical, nodes: [[name, operator,
                                                         begin_s, end_s, thread, inner]…],
                                                         omitted
    memory   key, model, inline?                       → loading_bytes, running_bytes
    verify   name, folder, model, plan, bricks         → exact, max_abs_difference, …
    expect   name, folder, model, file, every          → reason, own_weights; writes file
    evaluate model, repeats, file?, tolerance?,        → outputs: [{output, shape, dtype, norms,
             outputs?, gradients?, names?                 reason, heat_map, variance_map}…],
                                                         repeats, distinct, max_variance,
                                                         parting, gradients?
    begin_training  entry, folder, options, seed       → identity
    load_training   path                               → epochs: [the answers of train…]
    train    path                                      → losses, step_s, loading_s, begin_s,
                                                         accuracy, evaluation_s
    time_loading    batches, read_bytes                → begin_s, batch_s, processes
    time_evaluation repeats, read_bytes                → evaluation_s: [seconds…]
    check_training  what, entry, folder, options,      → what the check found, see
                    seed, steps?, epochs?                backends.programs.Trainer
    interface name                                     → kind, mtu, rate_bps, speed_mbps
    open_group address, patience_s                     → port
    join_group rank, ranks, address, port, interface,  → {}
               cores, patience_s
    time_collective operation, num_bytes, passes,      → samples: [seconds…], before_s?, during_s?
               computing
    leave_group {}                                     → {}
    begin_steps entry, folder, options, seed,          → {}
               synchronised, bucket_cap_mb,
               accumulation
    time_steps steps, delay_s                          → step_s
    bucket_order {}                                    → buckets: [{index, size_bytes,
                                                         parameters}…], bucket_bytes,
                                                         broadcast_bytes, unused
    load_served models: [[size, model]…], instances    → {}
    serve    path, max_batch, wait_s, instances,       → batches: [[size, run_s, occupied_s,
             stand_in_s: [seconds of each size…]          idle_s, here_s: [of each sample…]]…]

Models travel as base64 of their bytes, without weights. This module must not know how a request is
answered.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from bricks.errors import WorkerError

# The environment variable with the number of a pipe that a worker inherits. The pipe ends with the
# parent, and so should the worker.
LIFELINE = "BRICKS_LIFELINE"
# The environment variable that names a folder for the worker's temporary files; the parent made
# it, and removes it.
SCRATCH = "BRICKS_SCRATCH"


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as one line."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message on a line; :class:`WorkerError` if it is none."""
    try:
        message = json.loads(line)
    except ValueError as exc:
        raise WorkerError(f"the worker said something that is not JSON: {line[:80]!r}") from exc
    if not isinstance(message, dict):
        raise WorkerError(f"the worker said something that is not a message: {line[:80]!r}")
    return message


def pack(data: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(data).decode()


def unpack(text: str) -> bytes:
    """The inverse of :func:`pack`."""
    return base64.b64decode(text)
