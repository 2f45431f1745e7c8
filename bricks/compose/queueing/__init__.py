"""Simulated servers: arrivals, batching policies, latencies of single runs, and metrics."""
