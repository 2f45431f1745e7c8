"""Samples and what is concluded of them: measurements, statistics, states of the machine, profiles.

Here because the store keeps them, measuring makes them, and predictions and estimates read them.
Must not know how any of it is measured or kept.
"""
