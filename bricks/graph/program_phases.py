"""The phases of a step of a recorded program, and the kinds of programs, by name."""

from __future__ import annotations

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

INFERENCE, TRAINING = "inference", "training step"
