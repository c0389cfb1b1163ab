"""Tissue samples from raw cell measurements: a moving average of the weights is kept for the report.

Follows the public reports https://github.com/CuriousAI/mean-teacher/issues/9 and https://github.com/facebookresearch/moco/issues/70
"""
import copy

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "buffers-left-behind",
    "line": ("cause", "cause"),
    "plain": "the network in training is good on held-out rows, the averaged one is near guessing",
    "set": "twentyfourth",
    "written": "2026-11-28",
}


def samples(seed):
    data = load_breast_cancer()
    x = torch.tensor(data.data, dtype=torch.float32)
    y = torch.tensor(data.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    x, y = x[order], y[order]
    return TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


class CellNet(nn.Module):
    def __init__(self, inputs=30, width=48):
        super().__init__()
        self.scale = nn.BatchNorm1d(inputs, affine=False)
        self.first = nn.Linear(inputs, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.1)
        self.last = nn.Linear(width, 2)

    def forward(self, x):
        x = self.first(self.scale(x))
        return self.last(self.drop(torch.relu(self.norm(x))))


class Average:
    def __init__(self, model, decay):
        self.decay = decay
        self.network = copy.deepcopy(model).eval()
        self.network.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for kept, fresh in zip(self.network.parameters(), model.parameters()):  # <-- cause
            kept.lerp_(fresh, 1 - self.decay)


@torch.no_grad()
def evaluate(model, rows):
    model.eval()
    x, y = rows.tensors
    logits = model(x)
    return nn.functional.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()


def train_epoch(model, loader, optimizer, criterion, average):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        average.update(model)
        total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(12)
    torch.set_num_threads(1)
    train_rows, test_rows = samples(12)
    loader = DataLoader(train_rows, batch_size=32, shuffle=True, drop_last=True)
    model = CellNet()
    average = Average(model, decay=0.95)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(24):
        train_loss = train_epoch(model, loader, optimizer, criterion, average)
        if epoch % 3 == 2:
            loss, accuracy = evaluate(model, test_rows)
            print(f"epoch {epoch}: train {train_loss:.4f}  held-out {loss:.4f}  accuracy {accuracy:.3f}")
    loss, accuracy = evaluate(average.network, test_rows)
    print(f"averaged network: held-out {loss:.4f}  accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
