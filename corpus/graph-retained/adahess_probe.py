"""Training with a sharpness probe: Hutchinson trace of the Hessian on a copy of the model, every few steps.

Source: https://github.com/amirgholami/PyHessian/issues/25 (same: https://github.com/rfeinman/pytorch-minimize/issues/29)
"""
import copy

import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer

EXPECT = {
    "class": "f", "kind": "reference-cycle", "holding_marker": "HOLDS", "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class HessianTrace:
    def __init__(self, criterion, samples=4):
        self.criterion, self.samples = criterion, samples

    def __call__(self, model, batch):
        probe = copy.deepcopy(model)
        x, y = batch
        loss = self.criterion(probe(x), y)
        loss.backward(create_graph=True)  # HOLDS
        params = [p for p in probe.parameters() if p.requires_grad]
        grads = [p.grad for p in params]
        trace = 0.0
        for _ in range(self.samples):
            v = [torch.randint(0, 2, p.shape).float() * 2 - 1 for p in params]
            hv = torch.autograd.grad(grads, params, grad_outputs=v, retain_graph=True)
            trace += sum((a * b).sum().item() for a, b in zip(v, hv))
        return trace / self.samples


class MLP(nn.Module):
    def __init__(self, d, width=48):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc1, self.fc2, self.fc3 = nn.Linear(d, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x):
        x = F.softplus(self.fc1(self.norm(x)))
        return self.fc3(F.softplus(self.fc2(x))).squeeze(1)


def main(steps=150, probe_every=10):
    torch.manual_seed(0)
    data = load_breast_cancer()
    x = torch.tensor(data.data, dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0)
    y = torch.tensor(data.target, dtype=torch.float32)
    model = MLP(x.shape[1])
    criterion = nn.BCEWithLogitsLoss()
    sharpness = HessianTrace(criterion)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    history = []
    for step in range(steps):
        idx = torch.randint(0, len(x), (64,))
        loss = criterion(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % probe_every == 0:
            history.append(sharpness(model, (x[:256], y[:256])))
            print(f"step {step} loss {loss.item():.4f} hessian trace {history[-1]:.3f}")


if __name__ == "__main__":
    main()
