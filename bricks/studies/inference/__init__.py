"""Latencies of whole models: recomposed from their bricks, next to runs of the models."""
