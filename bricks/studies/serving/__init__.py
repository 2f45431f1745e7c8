"""Scenarios: latency under load and throughput of a model that is served, from its bricks."""
