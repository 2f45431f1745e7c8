"""PyTorch in portable suites: bricks as plain data, and what measures them on another host."""
