"""Samples and derived data: measurements, statistics, machine states, profiles.

Here because the store keeps them, measuring produces them, and predictions and estimates read them.
Must not know how they are measured or stored.
"""
