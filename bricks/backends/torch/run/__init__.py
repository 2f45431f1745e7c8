"""Runs of a program: its calls replayed, its steps timed, trained and checked.

    replay.py            calls one by one, as bricks or chained from the state of a real step
    whole_programs.py    the user's program: timed, for its memory, or under PyTorch's profiler
    tiny_programs.py     call overhead of each phase, from steps of tiny programs
    probes.py            such overheads, instruments and ONNX probes, as models that are loaded
    call_sequences.py    sequences of PyTorch's own calls
    training.py          epochs, evaluations, checkpoints
    training_checks.py   trajectories of optimisers, and the order of data
    double_precision.py  results and gradients, and central differences
    distributed.py       collectives and data-parallel steps, in one rank of several or a single one

Must not know plans or the store.
"""
