"""Programs in PyTorch, good ones and bad ones, for tests that record them; loaded by a worker."""

# mypy: ignore-errors

import itertools
import warnings

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Convolutions(nn.Module):
    def __init__(self, strided=False):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.last = nn.Linear(8, 5)
        self.dropout = nn.Dropout(0.25)
        self.strided = strided

    def forward(self, x):
        if self.strided:
            x = x.transpose(2, 3)
        x = functional.relu(self.norm(self.first(x)))
        x = self.second(x) + x
        return self.last(self.dropout(x.mean((2, 3))))


def _images(batch, **options):
    torch.manual_seed(1)
    return Convolutions(**options), torch.randn(batch, 3, 12, 12)


def convolutions(batch=2):
    module, images = _images(batch)
    return {"module": module.eval(), "inputs": (images,)}


def convolutions_strided(batch=2):
    module, images = _images(batch, strided=True)
    return {"module": module.eval(), "inputs": (images,)}


def _training(batch, optimizer):
    module, images = _images(batch)
    labels = torch.randint(0, 5, (batch,))
    return {
        "module": module,
        "inputs": (images,),
        "loss": lambda scores: functional.cross_entropy(scores, labels),
        "optimizer": optimizer(module.parameters()),
    }


def momentum(batch=4):
    return _training(batch, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=1e-4))


def momentum_slower(batch=4):
    return _training(batch, lambda p: torch.optim.SGD(p, 0.013, momentum=0.9, weight_decay=1e-4))


def adamw(batch=4):
    return _training(batch, lambda p: torch.optim.AdamW(p, 1e-3))


def foreach(batch=4):
    return _training(batch, lambda p: torch.optim.Adam(p, 1e-3, foreach=True))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16, batch_first=True)
        self.qkv = nn.Linear(16, 48)
        self.last = nn.Linear(16, 50, bias=False)

    def forward(self, words):
        x, _ = self.lstm(self.embedding(words))
        q, k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        x = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.last(x.transpose(1, 2).flatten(2))


def words(batch=3):
    torch.manual_seed(2)
    module, numbers = Words(), torch.randint(0, 50, (batch, 10))
    return {
        "module": module,
        "inputs": (numbers,),
        "loss": lambda scores: functional.cross_entropy(scores.flatten(0, 1), numbers.flatten()),
        "optimizer": torch.optim.Adam(module.parameters(), 1e-3),
    }


def half(batch=2):
    made = _training(batch, lambda p: torch.optim.SGD(p, 0.05))
    module, loss = made["module"], made["loss"]
    forward = module.forward

    def cast(images):
        with torch.autocast("cpu", torch.bfloat16):
            return forward(images)

    module.forward = cast
    made["loss"] = lambda scores: loss(scores.float())
    return made


def raises():
    raise ValueError("no luck today")


def returns_number():
    return 3


def without_module():
    return {"inputs": (torch.zeros(1),)}


def unknown_key():
    return {"module": nn.Linear(1, 1), "inputs": (torch.zeros(1),), "los": None}


def without_optimizer():
    return {"module": nn.Linear(1, 1), "inputs": (torch.zeros(1),), "loss": sum}


def loss_of_two():
    module = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    return {"module": module, "inputs": (torch.zeros(2),), "loss": abs, "optimizer": optimizer}


def elsewhere():
    return {"module": nn.Linear(1, 1, device="meta"), "inputs": (torch.zeros(1),)}


def sparse():
    class Sparse(nn.Module):
        def forward(self, x):
            return x.to_sparse().to_dense()

    return {"module": Sparse(), "inputs": (torch.eye(3),)}


def changing():
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = itertools.count()

        def forward(self, x):
            return x.exp() if next(self.steps) % 2 else x.log()

    return {"module": Changing(), "inputs": (torch.ones(3),)}


def fails_inside():
    class Failing(nn.Module):
        def forward(self, x):
            return x @ torch.zeros(7, 7)

    return {"module": Failing(), "inputs": (torch.ones(3, 3),)}


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(40, 8, mode="sum")
        self.last = nn.Linear(8, 3)

    def forward(self, words, offsets):
        return self.last(self.bag(words, offsets))


def bags(batch=4):
    torch.manual_seed(3)
    module = Bags()
    words, offsets = torch.randint(0, 40, (5 * batch,)), torch.arange(0, 5 * batch, 5)
    return {
        "module": module,
        "inputs": (words, offsets),
        "loss": lambda scores: scores.square().mean(),
        "optimizer": torch.optim.Adam(module.parameters(), 1e-3, foreach=True),
    }


def quantised(rows=False):
    """Dynamically quantised layers: scales for each tensor, or for each of its rows."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 5, bias=False)).eval()
    config = torch.ao.quantization.per_channel_dynamic_qconfig
    of = {nn.Linear: config} if rows else {nn.Linear}
    return {"module": _quantised(module, of), "inputs": (torch.randn(4, 16),)}


def quantised_rows():
    return quantised(rows=True)


def quantised_lstm():
    module = _quantised(nn.Sequential(nn.LSTM(8, 8)).eval(), {nn.LSTM})
    return {"module": module, "inputs": (torch.ones(3, 1, 8),)}


def _quantised(module, of):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its successor in another package
        return torch.ao.quantization.quantize_dynamic(module, of)


def foreign():
    library = torch.library.Library("mine", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: 2 * x, "CPU")

    class Foreign(nn.Module):
        kept = library

        def forward(self, x):
            return torch.ops.mine.twice(x)

    return {"module": Foreign(), "inputs": (torch.ones(3),)}


class Tripled(torch.autograd.Function):
    """Three times its input, with a gradient that is off by 1 %."""

    @staticmethod
    def forward(context, x):
        return 3 * x

    @staticmethod
    def backward(context, gradient):
        return 3.03 * gradient


class WrongInTheMiddle(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.last = nn.Linear(5, 4)

    def forward(self, x):
        return self.last(Tripled.apply(torch.tanh(self.first(x))))


def wrong_gradient():
    torch.manual_seed(5)
    return {"module": WrongInTheMiddle(), "inputs": (torch.randn(3, 6),)}


def wrong_gradient_training():
    made = wrong_gradient()
    parameters = made["module"].parameters()
    return made | {
        "loss": lambda scores: scores.square().mean(),
        "optimizer": torch.optim.SGD(parameters, 0.1),
    }


def rough():
    class Rough(nn.Module):
        def forward(self, x):
            return (x + 4096.0) - 4096.0

    return {"module": Rough(), "inputs": (torch.linspace(0.1, 0.9, 12).reshape(3, 4),)}


def unsettled():
    class Unsettled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("offset", torch.zeros(1))
            self.steps = itertools.count()

        def forward(self, x):
            self.offset.numpy()[:] = next(self.steps) % 2  # which is no call
            return x + self.offset

    return {"module": Unsettled(), "inputs": (torch.ones(2, 2),)}


def narrowed():
    class Narrowed(nn.Module):
        def forward(self, x):
            return torch.relu(x.float())

    return {"module": Narrowed(), "inputs": (torch.ones(2, 2),)}


def dropped():
    return {"module": nn.Dropout(0.5).train(), "inputs": (torch.ones(2, 2),)}


def partly_used():
    made = _training(4, lambda p: torch.optim.SGD(p, 0.05))
    made["module"].spare = nn.Linear(2, 2)
    return made


class Joined(nn.Module):
    """Two layers whose results lie side by side in one tensor."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(24, width) for width in (16, 32, 16))
        self.last = nn.Linear(64, 5)

    def forward(self, x):
        return self.last(torch.cat([functional.relu(part(x)) for part in self.parts], 1))


def joined(batch=64):
    return {"module": Joined().eval(), "inputs": (torch.randn(batch, 24),)}


class Attending(nn.Module):
    """A step of a decoder of one layer: attention of new tokens to all, with a cache."""

    def __init__(self, width=32, heads=4, words=50):
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(words, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.last = nn.Linear(width, words)

    def forward(self, tokens, keys, values):
        x = self.words(tokens)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        mixed = functional.scaled_dot_product_attention(query, keys, values)
        return self.last(x + mixed.transpose(1, 2).flatten(2)), keys, values


def decoder(batch=1, tokens=1, past_tokens=8):
    cache = (torch.randn(batch, 4, past_tokens, 8) for _ in range(2))
    new = torch.randint(0, 50, (batch, tokens))
    return {"module": Attending().eval(), "inputs": (new, *cache)}


class Masked(nn.Module):
    """Computes on the positions of a mask alone, as a loss on masked words does."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(16, 16), nn.Linear(16, 8)
        self.register_buffer("mask", torch.arange(64) % 7 == 0)

    def forward(self, x):
        return self.head(self.inner(x)[self.mask])


def masked():
    torch.manual_seed(0)
    module = Masked()
    return {
        "module": module,
        "inputs": (torch.randn(64, 16),),
        "loss": lambda y: y.pow(2).mean(),
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.01),
    }


class Deciding(nn.Module):
    """Calls whose time depends on what they read: order, zeros, signs, how often, and which."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5000, 64)
        self.register_buffer("borders", torch.linspace(-1, 1, 100))

    def forward(self, numbers, words):
        kept = numbers[numbers > 1.5]
        return (
            torch.sort(numbers).values,
            torch.unique(torch.round(numbers)),
            kept + torch.ones_like(kept),
            torch.searchsorted(self.borders, numbers),
            functional.elu(numbers),
            self.table(words),
        )


def _deciding(numbers, words):
    return {"module": Deciding().eval(), "inputs": (numbers, words)}


def deciding(batch=1):
    torch.manual_seed(batch)
    words = torch.randint(0, 30, (2000,)) ** 2
    return _deciding(torch.linspace(-2, 2, 4000), words)


def deciding_little():
    torch.manual_seed(0)
    return _deciding(torch.rand(4000), torch.randint(0, 5000, (2000,)))


def compiled_already():
    return {"module": torch.compile(nn.Linear(4, 4)), "inputs": (torch.randn(2, 4),)}


def with_closure():
    module = nn.Linear(4, 1)
    return {
        "module": module,
        "inputs": (torch.randn(2, 4),),
        "loss": lambda y: y.pow(2).mean(),
        "optimizer": torch.optim.LBFGS(module.parameters()),
    }


def list_of_inputs():
    return {"module": nn.Linear(4, 4), "inputs": ([torch.randn(2, 4)],)}


class Recomputed(nn.Module):
    """Two layers with dropout whose activations are computed again in the backward pass."""

    def __init__(self, **how):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.5)) for _ in range(2)
        )
        self.how = how

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = x + checkpoint(layer, x, **self.how)
        return x


def _recomputed(**how):
    torch.manual_seed(0)
    module = Recomputed(**how)
    return {
        "module": module,
        "inputs": (torch.randn(8, 16),),
        "loss": lambda y: y.pow(2).mean(),
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1),
    }


def recomputed():
    return _recomputed(use_reentrant=False)


def recomputed_reentrant():
    return _recomputed(use_reentrant=True)


def recomputed_with_other_masks():
    return _recomputed(use_reentrant=False, preserve_rng_state=False)


def recomputed_reentrant_with_other_masks():
    return _recomputed(use_reentrant=True, preserve_rng_state=False)


def reseeded():
    class Reseeded(nn.Module):
        def forward(self, x):
            torch.manual_seed(7)
            x = x * torch.rand_like(x)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(7)
                x = x + torch.rand_like(x)
            return x * torch.rand_like(x)

    return {"module": Reseeded(), "inputs": (torch.ones(4, 4),)}


class _Cached(torch.nn.Module):
    """A cache that begins without elements, in the step and as a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(0, 8))

    def forward(self, x):
        begun = torch.tensor([], dtype=x.dtype).reshape(0, 8)
        return torch.cat([begun, self.kept, x]).relu()


def without_elements(batch=2):
    return {"module": _Cached().eval(), "inputs": (torch.randn(batch, 8),)}
