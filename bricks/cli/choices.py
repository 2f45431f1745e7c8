"""The values of options, with a description of each: for help, and for completion in a shell.

Here because importing the library that defines them would make both too slow; a test checks that
they are the same. Must not know the effect of a value.
"""

GRANULARITIES = {
    "executed": "nodes of the graph that the runtime executes",
    "1": "single layers of the model",
    "2": "sequences of at most two layers",
    "1+1": "single layers, overlapping by one",
    "2+1": "sequences of at most two layers, overlapping by one",
}
OPTIMIZATIONS = {
    "all": "all that the runtime can do",
    "extended": "all but other layouts in memory",
    "basic": "what keeps to the operators of the model's graph",
    "none": "nothing",
}
DEVICES = {
    "cpu": "the processor",
    "cuda": "the first GPU of NVIDIA",
}
EFFORTS = {
    "full": "measure every brick",
    "balanced": "measure what matters most, predict the others",
    "quick": "measure less, predict more",
}
QUANTIZED = {
    "none": "the numbers that the model has",
    "int8": "8-bit integers, with scales of synthetic data",
}
COLLECTIVES = {
    "all-reduce": "the sum over all ranks, on each of them",
    "broadcast": "the tensor of the first rank, on each of them",
    "all-gather": "a part from each rank, on each of them",
    "reduce-scatter": "the sum over all ranks, a part on each of them",
}
LISTS = {
    "deepbench": "a selection of DeepBench's convolutions, matrix products and recurrent layers",
    "zoo": "the costliest bricks of the zoo on a system",
}
KEPT = {
    "plan": "the plan of an uploaded model",
    "model": "its plan, and the model without weights",
    "nothing": "nothing of it",
}
