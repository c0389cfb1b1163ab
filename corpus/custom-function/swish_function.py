"""A memory-saving Swish as a custom autograd Function, taken into a regression network. With nn.SiLU the same network
fits the data, with the own Function the loss stays up: backward returns only the local derivative and forgets to multiply
it by the gradient that comes in from above."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "wrong backward in a custom Function",
    "kind": "wrong-backward",
    "line": ["backward", "cause"],
    "what": "MemoryEfficientSwish.backward ignores grad_output (no chain rule), so every layer below the activation gets a gradient that has nothing to do with the loss.",
    "symptom": "no error; loss stays near the variance of the targets, with nn.SiLU it goes to almost nothing",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(9)
torch.set_num_threads(1)


class MemoryEfficientSwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        sig = torch.sigmoid(x)
        return sig * (1 + x * (1 - sig))  # <-- cause


class Swish(nn.Module):
    def forward(self, x):
        return MemoryEfficientSwish.apply(x)


class Regressor(nn.Module):
    def __init__(self, n_in, width=48, depth=3, act=Swish):
        super().__init__()
        dims = [n_in] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims[:-1], dims[1:]))
        self.act = act()
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = self.act(layer(x))
        return self.out(x).squeeze(-1)


def friedman(n):
    x = torch.rand(n, 6)
    y = (10 * torch.sin(torch.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
         + 10 * x[:, 3] + 5 * x[:, 4])
    return x, (y - 14.4) / 4.9


xtr, ytr = friedman(2000)
xva, yva = friedman(500)
model = Regressor(6)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for epoch in range(8):
    model.train()
    order = torch.randperm(len(xtr))
    total = 0.0
    for i in range(0, len(xtr), 100):
        idx = order[i:i + 100]
        loss = F.mse_loss(model(xtr[idx]), ytr[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / 20
    model.eval()
    with torch.no_grad():
        val = F.mse_loss(model(xva), yva).item()
    norm = sum(layer.weight.grad.norm().item() for layer in model.layers)
    print(f"epoch {epoch}  train mse {total:.4f}  val mse {val:.4f}  gradient of the hidden layers {norm:.2f}")
