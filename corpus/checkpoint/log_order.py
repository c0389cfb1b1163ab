"""Classify machine logs: does the event "valve opened" come before "pump started"? A small encoder reads event codes.

The event vectors come from another department and are kept as they are; memory is saved by recomputing the layers.
Report: https://github.com/mlfoundations/open_clip/issues/573 and https://github.com/huggingface/transformers/issues/21381
"""
import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "HERE"),
    "plain": "The accuracy stays close to guessing; one warning 'None of the inputs have requires_grad=True'.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

EVENTS = 40
START, VALVE, PUMP = 0, 1, 2
LENGTH = 14


def make_logs(count, seed):
    rng = np.random.default_rng(seed)
    logs = rng.integers(3, EVENTS, size=(count, LENGTH))
    logs[:, 0] = START
    labels = np.zeros(count, dtype=np.int64)
    for row in range(count):
        first, second = sorted(rng.choice(np.arange(1, LENGTH), size=2, replace=False))
        valve_first = rng.random() < 0.5
        logs[row, first], logs[row, second] = (VALVE, PUMP) if valve_first else (PUMP, VALVE)
        labels[row] = int(valve_first)
    return TensorDataset(torch.from_numpy(logs), torch.from_numpy(labels))


class LogEncoder(nn.Module):
    def __init__(self, width=64, depth=2):
        super().__init__()
        self.events = nn.Embedding(EVENTS, width)
        self.places = nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)

    def keep_vectors(self):
        for table in (self.events, self.places):
            table.weight.requires_grad_(False)

    def forward(self, logs):
        hidden = self.events(logs) + self.places(torch.arange(logs.shape[1]))
        for layer in self.layers:
            if self.training:
                hidden = checkpoint(layer, hidden, use_reentrant=True)  # HERE
            else:
                hidden = layer(hidden)
        return self.head(self.norm(hidden[:, 0]))


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    right = 0
    for logs, labels in DataLoader(data, batch_size=256):
        right += (model(logs).argmax(1) == labels).sum().item()
    model.train()
    return right / len(data)


def main():
    torch.manual_seed(0)
    train, valid = make_logs(2400, seed=1), make_logs(600, seed=2)
    model = LogEncoder()
    model.keep_vectors()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    loader = DataLoader(train, batch_size=48, shuffle=True)
    model.train()
    for epoch in range(4):
        total = 0.0
        for logs, labels in loader:
            loss = nn.functional.cross_entropy(model(logs), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}  loss {total / len(loader):.4f}  valid accuracy {evaluate(model, valid):.3f}", flush=True)


if __name__ == "__main__":
    main()
