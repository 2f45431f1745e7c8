"""Studies of models: each names needed measurements, predicts, and compares with real runs."""
