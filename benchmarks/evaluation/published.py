"""What the DLBricks paper found (Li, Dakkak, Xiong, Hwu; ICPE 2020; arXiv:1911.07967, section 4).

Numbers are from its text, or where it only draws them, read off the vector paths of its figures.
"""

from __future__ import annotations

MODELS = 50
TASKS = 5
LAYERS = 10_815
UNIQUE_LAYERS = 1_529
# Its most repetitive model, of so many layers.
LEAST_UNIQUE_LAYERS, LEAST_UNIQUE_SHARE = 1_029, 0.039

# Estimate over measured latency at G = 1 on c5.2xlarge, as the text says it. Its figure shows a
# geometric mean of .912, which is what GEOMEANS holds.
TOLD_SYSTEM = "c5.2xlarge"
TOLD_LOW, TOLD_HIGH, TOLD_GEOMEAN = 0.829, 0.981, 0.918

# Geometric means of estimate over measured latency for G = 1 … 10, by system (read off).
GEOMEANS = {
    "c5.xlarge": (0.958, 0.978, 0.981, 0.984, 0.985, 0.985, 0.986, 0.987, 0.978, 0.974),
    "c5.2xlarge": (0.912, 0.921, 0.987, 1.005, 0.995, 0.993, 1.011, 1.000, 0.994, 0.993),
    "c4.xlarge": (1.09, 1.08, 1.10, 1.11, 1.09, 1.10, 1.09, 1.09, 1.10, 1.07),
    "c4.2xlarge": (1.06, 1.02, 1.02, 1.03, 1.04, 1.06, 1.04, 1.04, 1.03, 1.02),
}

# Mean of |estimate / measured - 1| over the models on c5.2xlarge, for G = 1 … 6 (read off).
MEAN_ERRORS = (0.081, 0.088, 0.032, 0.016, 0.024, 0.020)
# The granularity that is best there, and how many of the models are then within 5 %.
BEST_GRANULARITY, BEST_WITHIN = 4, 48

# Sum of whole-model latencies over sum of unique brick latencies on c5.xlarge, for G = 1 … 10
# (read off); the text says up to 4.4.
SPEEDUP_SYSTEM = "c5.xlarge"
SPEEDUPS = (4.38, 3.67, 3.25, 3.09, 3.28, 3.15, 2.83, 2.91, 3.02, 3.06)
