"""Names of phases of a recorded step, kinds of programs, roles of tensors, parts of overhead."""

from __future__ import annotations

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

INFERENCE, TRAINING = "inference", "training step"

# Roles of tensors that exist before a step.
INPUTS, PARAMETERS, BUFFERS = "inputs", "parameters", "buffers"

# Parts of call overhead: once in a phase, for each call, and for code evicted from the caches.
PER_PHASE, PER_CALL, EVICTION = "once", "each", "displaced"
