"""Recurrent networks: a language model of LSTM and a forecaster of GRU, inference and training.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. Sequences are random, since latency does not depend on them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class LSTMLanguageModel(nn.Module):
    """A language model of two LSTM layers (Zaremba et al., 2014, arXiv:1409.2329)."""

    vocabulary, length = 10_000, 35

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.words = nn.Embedding(self.vocabulary, width)
        self.dropout = nn.Dropout(0.5)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, dropout=0.5)
        self.classifier = nn.Linear(width, self.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, of shape (batch, length, vocabulary)."""
        x, _ = self.lstm(self.dropout(self.words(tokens)))
        return self.classifier(self.dropout(x))


class GRUForecaster(nn.Module):
    """The future of a few series from their past, by GRU (Cho et al., 2014, arXiv:1406.1078)."""

    series, past, future = 8, 48, 12

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.gru = nn.GRU(self.series, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, self.future * self.series)

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        """The forecast, of shape (batch, future, series)."""
        _, last = self.gru(past)
        return self.head(last[-1]).unflatten(1, (self.future, self.series))


def _tokens(batch: int) -> torch.Tensor:
    return torch.randint(LSTMLanguageModel.vocabulary, (batch, LSTMLanguageModel.length))


def _past(batch: int) -> torch.Tensor:
    return torch.randn(batch, GRUForecaster.past, GRUForecaster.series)


def lstm(batch: int = 20) -> dict[str, Any]:
    """A language model of LSTM scores 35 tokens: inference."""
    torch.manual_seed(0)
    return {"module": LSTMLanguageModel().eval(), "inputs": (_tokens(batch),)}


def lstm_training(batch: int = 20) -> dict[str, Any]:
    """A language model of LSTM learns from 35 tokens: training with SGD."""
    torch.manual_seed(0)
    module = LSTMLanguageModel()
    tokens, labels = _tokens(batch), _tokens(batch).flatten()
    return {
        "module": module,
        "inputs": (tokens,),
        "loss": lambda scores: functional.cross_entropy(scores.flatten(0, 1), labels),
        "optimizer": torch.optim.SGD(module.parameters(), 1.0),
    }


def gru(batch: int = 64) -> dict[str, Any]:
    """A GRU forecasts 12 steps of 8 series from 48: inference."""
    torch.manual_seed(0)
    return {"module": GRUForecaster().eval(), "inputs": (_past(batch),)}


def gru_training(batch: int = 32) -> dict[str, Any]:
    """A GRU forecasts 12 steps of 8 series from 48: training with Adam."""
    torch.manual_seed(0)
    module = GRUForecaster()
    future = torch.randn(batch, GRUForecaster.future, GRUForecaster.series)
    return {
        "module": module,
        "inputs": (_past(batch),),
        "loss": lambda forecast: functional.mse_loss(forecast, future),
        "optimizer": torch.optim.Adam(module.parameters(), 1e-3),
    }
