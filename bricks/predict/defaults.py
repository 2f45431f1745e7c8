"""Limits of predictions, for the command line too, which should not import what predicts."""

# From fewer measured bricks than this nothing is learned.
MIN = 30
