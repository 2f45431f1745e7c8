"""By name: phases of a recorded step, kinds of programs, parts of what is around their calls."""

from __future__ import annotations

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

INFERENCE, TRAINING = "inference", "training step"

# What is done once in a phase, what for each call, and how much longer it takes where calls have
# displaced it from the caches.
ONCE, EACH, DISPLACED = "once", "each", "displaced"
