"""One network for the grape (three classes) and the alcohol content of a wine, two losses with weights.

The total loss is printed and backward runs, yet nothing is learned.
Follows https://github.com/speechbrain/speechbrain/issues/735
"""
import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "HERE"),
    "plain": "no error, but the losses only wobble and the accuracy never changes",
    "set": "twentyfifth",
    "written": "2026-11-28",
}


class Balance:
    def __init__(self, weights):
        self.names = list(weights)
        self.weights = torch.tensor([weights[n] for n in self.names])

    def __call__(self, losses):
        values = torch.tensor([losses[n] for n in self.names], requires_grad=True)  # HERE
        return (values * self.weights).sum()


class Cellar(nn.Module):
    def __init__(self, n_inputs):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_inputs, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.grape = nn.Linear(32, 3)
        self.alcohol = nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.grape(h), self.alcohol(h).squeeze(-1)


def load():
    data = load_wine()
    x = torch.tensor(data.data, dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0)
    alcohol, inputs = x[:, 0].clone(), x[:, 1:]
    y = torch.tensor(data.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(4))
    cut = 130
    pick = lambda idx: TensorDataset(inputs[idx], y[idx], alcohol[idx])
    return pick(order[:cut]), pick(order[cut:])


@torch.no_grad()
def report(model, data):
    x, y, alcohol = data.tensors
    logits, level = model(x)
    good = (logits.argmax(1) == y).float().mean().item()
    return good, (level - alcohol).pow(2).mean().item()


def train(model, data, held, epochs):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    balance = Balance({"grape": 1.0, "alcohol": 0.5})
    loader = DataLoader(data, batch_size=26, shuffle=True)
    for epoch in range(epochs):
        total = 0.0
        for x, y, alcohol in loader:
            logits, level = model(x)
            losses = {
                "grape": nn.functional.cross_entropy(logits, y),
                "alcohol": nn.functional.mse_loss(level, alcohol),
            }
            loss = balance(losses)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        if epoch % 10 == 0 or epoch == epochs - 1:
            good, error = report(model, held)
            print(f"epoch {epoch} loss {total / len(loader):.4f} held accuracy {good:.3f} alcohol mse {error:.3f}")


def main():
    torch.manual_seed(9)
    data, held = load()
    model = Cellar(data.tensors[0].shape[1])
    train(model, data, held, epochs=101)


if __name__ == "__main__":
    main()
