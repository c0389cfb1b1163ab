"""The inner loop adapts detached copies of the weights, so the query loss has no path back to the meta weights: only
the learned inner step sizes get gradients and the initialisation never moves.

Report: https://github.com/KanishJebaMathewM/Truxify/issues/13118 (MAML inner loop leaves the graph, meta-model never
trains)
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "HERE"),
    "plain": "with: held-out query loss 3.09 -> 3.04 over 700 iterations, network weights unchanged (grad None); adapting from the live parameters: 2.04 -> 0.84",
    "set": "twentyeighth",
    "written": "2026-11-29",
}


torch.manual_seed(5)


def sample_spring(shots, gen):
    amp = 0.5 + 4.0 * torch.rand((), generator=gen)
    phase = math.pi * torch.rand((), generator=gen)
    load = 10.0 * torch.rand(2 * shots, 1, generator=gen) - 5.0
    reading = amp * torch.sin(load + phase)
    return load[:shots], reading[:shots], load[shots:], reading[shots:]


class ScaleNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(1, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, load):
        return self.body(load)


class FewShotCalibrator:
    def __init__(self, inner_steps=2, inner_lr=0.02, outer_lr=2e-3):
        self.net = ScaleNet()
        self.inner_steps = inner_steps
        self.step_sizes = nn.ParameterDict(
            {k.replace(".", "_"): nn.Parameter(torch.tensor(inner_lr)) for k, _ in self.net.named_parameters()}
        )
        self.outer = torch.optim.Adam(
            [
                {"params": self.net.parameters(), "lr": outer_lr},
                {"params": self.step_sizes.parameters(), "lr": 1e-4},
            ]
        )

    def adapt(self, load, reading, create_graph=True):
        fast = {k: p.detach().clone().requires_grad_(True) for k, p in self.net.named_parameters()}  # HERE
        for _ in range(self.inner_steps):
            loss = F.mse_loss(functional_call(self.net, fast, (load,)), reading)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=create_graph)
            fast = {
                k: w - self.step_sizes[k.replace(".", "_")] * g
                for (k, w), g in zip(fast.items(), grads)
            }
        return fast

    def outer_step(self, tasks):
        total = 0.0
        for xs, ys, xq, yq in tasks:
            fast = self.adapt(xs, ys)
            total = total + F.mse_loss(functional_call(self.net, fast, (xq,)), yq)
        total = total / len(tasks)
        self.outer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(list(self.net.parameters()) + list(self.step_sizes.parameters()), 10.0)
        self.outer.step()
        return total.item()

    def score(self, n_tasks, gen):
        out = []
        for _ in range(n_tasks):
            xs, ys, xq, yq = sample_spring(10, gen)
            fast = self.adapt(xs, ys, create_graph=False)
            with torch.no_grad():
                out.append(F.mse_loss(functional_call(self.net, fast, (xq,)), yq).item())
        return sum(out) / len(out)

    def fit(self, iterations=700, meta_batch=6):
        gen = torch.Generator().manual_seed(17)
        for it in range(iterations):
            tasks = [sample_spring(10, gen) for _ in range(meta_batch)]
            loss = self.outer_step(tasks)
            if (it + 1) % 100 == 0:
                held = self.score(60, torch.Generator().manual_seed(99))
                rates = torch.stack([p.detach() for p in self.step_sizes.values()])
                print(f"iter {it + 1:4d} query {loss:.3f} held-out {held:.3f} mean inner lr {rates.mean():.4f}")


if __name__ == "__main__":
    FewShotCalibrator().fit()
