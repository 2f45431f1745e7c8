"""Servers that are simulated: arrivals, a policy, latencies of single runs, and what follows."""
