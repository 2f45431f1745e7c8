"""By name: phases of a recorded step, kinds of programs, roles of tensors, parts of overhead."""

from __future__ import annotations

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

INFERENCE, TRAINING = "inference", "training step"

# Roles of what is there before a step.
INPUTS, PARAMETERS, BUFFERS = "inputs", "parameters", "buffers"

# What is done once in a phase, what for each call, and how much longer it takes where calls have
# displaced it from the caches.
ONCE, EACH, DISPLACED = "once", "each", "displaced"
