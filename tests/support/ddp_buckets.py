"""Run where PyTorch is: the buckets that DistributedDataParallel makes of workloads, as JSON.

Usage: python ddp_buckets.py FOLDER BUCKET_CAP_MB FILE.py:FUNCTION …; the cap may be ``default``.
Each bucket is a list of the names of its parameters, in the order of reduction.
"""

# mypy: ignore-errors

import json
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# DDP builds its buckets anew after the first step, and reports them after the second.
STEPS = 3


def made(folder, entry):
    file, name = entry.rsplit(":", 1)
    sys.path.insert(0, str((folder / file).parent))
    spec = spec_from_file_location(f"workload_{Path(file).stem}", folder / file)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)()


def buckets(workload, cap_mb):
    module = workload["module"]
    cap = {} if cap_mb == "default" else {"bucket_cap_mb": float(cap_mb)}
    parallel = DistributedDataParallel(module, **cap)
    for _ in range(STEPS):
        workload["optimizer"].zero_grad(set_to_none=True)
        workload["loss"](parallel(*workload["inputs"])).backward()
        workload["optimizer"].step()
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    told = parallel._get_ddp_logging_data()["rebuilt_per_bucket_param_indices"]
    return [[names[int(i)] for i in bucket.split()] for bucket in told.split(",")]


def main(folder, cap_mb, *entries):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        dist.init_process_group("gloo", init_method=f"file://{place}/group", rank=0, world_size=1)
        found = {entry: buckets(made(Path(folder), entry), cap_mb) for entry in entries}
        dist.destroy_process_group()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
