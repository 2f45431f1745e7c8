"""A runtime that computes nothing: latencies are made up."""
