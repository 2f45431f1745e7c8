"""Workloads to train, good ones and bad ones, for tests; loaded by a worker."""

# mypy: ignore-errors

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset, WeightedRandomSampler

ITEMS, HELD_OUT, BATCH = 192, 64, 16


def _items():
    generator = torch.Generator().manual_seed(5)
    classes = torch.randint(3, (ITEMS,), generator=generator)
    centres = 1.5 * torch.randn(3, 8, generator=generator)
    return centres[classes] + torch.randn(ITEMS, 8, generator=generator), classes


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.norm = nn.BatchNorm1d(32)
        self.dropout = nn.Dropout(0.2)
        self.last = nn.Linear(32, 3)

    def forward(self, x):
        return self.last(self.dropout(functional.relu(self.norm(self.first(x)))))


def _training(optimizer=None, module=None, data=None, **changes):
    module = module or Network()
    given, classes = _items()
    held, rest = slice(0, HELD_OUT), slice(HELD_OUT, ITEMS)
    learned = TensorDataset(given[rest], classes[rest])
    inputs, targets = given[:BATCH].clone(), classes[:BATCH].clone()
    make = optimizer or (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9))
    loader = DataLoader(learned, BATCH, shuffle=True, drop_last=True)
    made = {
        "module": module,
        "inputs": (inputs,),
        "targets": (targets,),
        "loss": lambda scores: functional.cross_entropy(scores, targets),
        "optimizer": make(module.parameters()),
        "data": loader if data is None else data(learned),
        "accuracy": lambda: (module(given[held]).argmax(1) == classes[held]).float().mean(),
    }
    made |= changes
    return {name: held for name, held in made.items() if held is not None}


def good():
    return _training()


def with_own_generator():
    generator = torch.Generator().manual_seed(9)
    return _training(
        lambda p: torch.optim.AdamW(p, 1e-3),
        data=lambda items: DataLoader(
            items, BATCH, shuffle=True, drop_last=True, generator=generator
        ),
    )


class OnePercentOff(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return 1.01 * gradient * ctx.saved_tensors[0].cos()


class WrongSine(nn.Module):
    def forward(self, x):
        return OnePercentOff.apply(x)


def wrong_gradient():
    module = nn.Sequential(nn.Linear(8, 16), WrongSine(), nn.Linear(16, 3))
    return _training(module=module)


class GrowingAdamW(torch.optim.AdamW):
    """Weight decay with the wrong sign."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(1 + 2 * group["lr"] * group["weight_decay"])
        return super().step(closure)


def wrong_optimizer():
    return _training(lambda p: GrowingAdamW(p, 1e-3, weight_decay=0.01))


class OwnOptimizer(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad.sign(), alpha=group["lr"])


def own_optimizer():
    return _training(lambda p: OwnOptimizer(p))


class WithoutRate(torch.optim.Optimizer):
    def __init__(self, params, step_size=0.1):
        super().__init__(params, {"step_size": step_size})


def without_rate():
    return _training(lambda p: WithoutRate(p))


def biased_sampler():
    weights = torch.ones(ITEMS - HELD_OUT)
    weights[:32] = 3.0
    sampler = WeightedRandomSampler(weights, ITEMS - HELD_OUT)
    return _training(data=lambda items: DataLoader(items, BATCH, sampler=sampler))


class SomeTwice(Sampler):
    def __iter__(self):
        order = torch.randperm(ITEMS - HELD_OUT)
        return iter(torch.where(order < 8, order + 8, order).tolist())

    def __len__(self):
        return ITEMS - HELD_OUT


def some_items_twice():
    return _training(data=lambda items: DataLoader(items, BATCH, sampler=SomeTwice()))


def in_order():
    return _training(data=lambda items: DataLoader(items, BATCH, drop_last=True))


class Noisy(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        given, classes = self.items[number]
        return given + 0.1 * torch.randn(8), classes


def augmented():
    return _training(data=lambda items: DataLoader(Noisy(items), BATCH, shuffle=True))


def diverging():
    return _training(module=nn.Linear(8, 3)) | {"loss": lambda scores: scores.log().mean()}


def coarse():
    made = _training()
    loss = made["loss"]
    return made | {"loss": lambda scores: loss(scores.float())}


# Optimisers of each kind, with options that change their formulas.
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, weight_decay=1e-3),
    "sgd_momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.3),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "sgd_upwards": lambda p: torch.optim.SGD(p, 0.01, weight_decay=0.1, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, weight_decay=1e-2),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, 1e-2, betas=(0.8, 0.95), amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3, eps=1e-6),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, 5e-5, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, 6e-4, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.05, lr_decay=0.1, weight_decay=1e-3),
    "adafactor": lambda p: torch.optim.Adafactor(p, 0.05, weight_decay=1e-2),
    "adafactor_own_eps": lambda p: torch.optim.Adafactor(p, 0.01, eps=(1e-9, 1e-2), d=1.5),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-2, alpha=0.9),
    "rmsprop_centered": lambda p: torch.optim.RMSprop(p, 1e-3, momentum=0.9, centered=True),
}


def _with(make):
    return lambda: _training(make)


globals().update({name: _with(make) for name, make in OPTIMIZERS.items()})


# What cannot be trained.


def without_data():
    return _training() | {"data": None, "accuracy": None}


def without_accuracy():
    return _training(accuracy=None) | {"accuracy": None}


def inference():
    return {"module": nn.Linear(1, 1), "inputs": (torch.zeros(1),)}


def data_of_type_int():
    return _training() | {"data": 3}


def one_epoch_alone():
    made = _training()
    return made | {"data": iter(made["data"])}


def targets_of_type_int():
    return _training() | {"targets": 3}


def accuracy_is_a_number():
    return _training() | {"accuracy": 0.5}


def accuracy_above_one():
    return _training() | {"accuracy": lambda: 93.0}


def no_batch():
    return _training() | {"data": []}


def last_batch_shorter():
    return _training(data=lambda items: DataLoader(items, 50))


def batches_without_targets():
    return _training() | {"data": [(torch.zeros(BATCH, 8),)]}


def seeds_itself():
    torch.manual_seed(3)
    return _training()


def data_raise():
    def batches():
        raise OSError("the disk is gone")
        yield

    class Failing:
        def __iter__(self):
            return batches()

    return _training() | {"data": Failing()}
