"""Heart beats from intervals: from epoch 3 on the gradient of each branch is clamped by a hook, and the skip path with it."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "gradient-overwritten",
    "line": ("mutated", "HERE"),
    "plain": "no error; after epoch 3 the loss falls much more slowly",
    "set": "classes",
    "written": "2026-11-28",
}


def beats(n, seed):
    rng = np.random.default_rng(seed)
    rest = rng.uniform(0.6, 1.1, size=(n, 1))
    wave = 0.1 * np.sin(np.arange(24)[None] * rng.uniform(0.2, 0.9, size=(n, 1)))
    intervals = rest + wave + 0.02 * rng.standard_normal((n, 24))
    return torch.tensor(intervals, dtype=torch.float32), torch.tensor(wave.std(1) * 10, dtype=torch.float32)


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.limit = None

    def forward(self, x):
        out = self.down(torch.relu(self.up(self.norm(x))))
        if self.limit is not None and out.requires_grad:
            out.register_hook(self.clamped)
        return x + out

    def clamped(self, grad):
        return grad.clamp_(-self.limit, self.limit)  # HERE


class Beats(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(24, width)
        self.blocks = nn.ModuleList(Mixer(width) for _ in range(4))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        return self.last(h).squeeze(-1)


def main():
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(*beats(1280, 0)), batch_size=64, shuffle=True)
    model = Beats()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(8):
        if epoch == 3:
            for block in model.blocks:
                block.limit = 1e-4
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
