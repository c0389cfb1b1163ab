"""Quality classes of wine from chemical values, small batches gathered with accelerate.

Report: https://github.com/huggingface/transformers/issues/26312
"""
import numpy as np
import torch
from accelerate import Accelerator
from sklearn.datasets import load_wine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "loss-divided-twice",
    "line": ("cause", "HERE"),
    "framework": "accelerate",
    "plain": "The loss falls very slowly and the accuracy ends low.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

GATHER = 8
EPOCHS = 16


def load(seed=0):
    values, quality = load_wine(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(quality))
    values, quality = values[order], quality[order]
    values = (values - values[:130].mean(0)) / values[:130].std(0)
    values = torch.tensor(values, dtype=torch.float32)
    quality = torch.tensor(quality)
    pick = rng.integers(0, 130, 1024)
    noise = torch.tensor(rng.normal(0, 0.3, (1024, values.shape[1])), dtype=torch.float32)
    return TensorDataset(values[pick] + noise, quality[pick]), (values[130:], quality[130:])


class Taster(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(13, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3))

    def forward(self, values):
        return self.layers(values)


def evaluate(model, values, quality):
    model.eval()
    with torch.no_grad():
        scores = model(values)
    model.train()
    return nn.functional.cross_entropy(scores, quality).item(), (scores.argmax(1) == quality).float().mean().item()


def main():
    torch.manual_seed(2)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=GATHER)
    train, (values, quality) = load()
    model = Taster()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    loader = DataLoader(train, batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    updates = 0
    for epoch in range(EPOCHS):
        total = 0.0
        for batch, target in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(batch), target)
                total += loss.item()
                accelerator.backward(loss / GATHER)  # HERE
                optimizer.step()
                optimizer.zero_grad()
                updates += int(accelerator.sync_gradients)
        if epoch % 4 == 3:
            valid, share = evaluate(model, values, quality)
            print(f"epoch {epoch}  updates {updates}  loss {total / len(loader):.3f}  valid {valid:.3f}  accuracy {share:.3f}")


if __name__ == "__main__":
    main()
