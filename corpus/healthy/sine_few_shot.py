"""Second order MAML on sine curves, written with torch.func.

Story: the outer loop differentiates through two inner updates; the model itself is never
called, only functional_call on dicts of tensors.  A user of learn2learn-like code asked why
"model(x)" has no gradients of its own here (general knowledge of forum questions on MAML with
functional_call); nothing is wrong in this script.
"""
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

EXPECT = {"class": "x", "kind": "none", "plain": {"outcome": "silent"}, "set": "fourteenth", "written": "2026-11-26"}


@dataclass
class MetaConfig:
    tasks: int = 16
    shots: int = 10
    inner_lr: float = 0.02
    inner_steps: int = 2
    outer_lr: float = 2e-3
    iterations: int = 500
    report: int = 50


def make_model(hidden=40):
    return nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))


class SineTasks:
    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)

    def sample(self, tasks, shots):
        amplitude = 0.5 + 1.5 * torch.rand(tasks, 1, 1, generator=self.g)
        phase = math.pi * torch.rand(tasks, 1, 1, generator=self.g)
        x = 10 * torch.rand(tasks, 2 * shots, 1, generator=self.g) - 5
        y = amplitude * torch.sin(x + phase)
        return x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:]


class Maml:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = make_model()
        self.outer = torch.optim.Adam(self.model.parameters(), lr=cfg.outer_lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.outer, 200, gamma=0.7)

    def loss(self, params, x, y):
        return (functional_call(self.model, params, (x,)) - y).pow(2).mean()

    def adapt_and_score(self, params, x_s, y_s, x_q, y_q):
        fast = params
        for _ in range(self.cfg.inner_steps):
            grads = grad(self.loss)(fast, x_s, y_s)
            fast = {k: v - self.cfg.inner_lr * grads[k] for k, v in fast.items()}
        return self.loss(fast, x_q, y_q)

    def iteration(self, batch):
        params = dict(self.model.named_parameters())
        per_task = vmap(self.adapt_and_score, in_dims=(None, 0, 0, 0, 0))(params, *batch)
        meta_loss = per_task.mean()
        self.outer.zero_grad()
        meta_loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        self.outer.step()
        self.scheduler.step()
        return meta_loss.item()


def main():
    torch.manual_seed(0)
    cfg = MetaConfig()
    maml, tasks = Maml(cfg), SineTasks()
    window = []
    for i in range(cfg.iterations):
        window.append(maml.iteration(tasks.sample(cfg.tasks, cfg.shots)))
        if (i + 1) % cfg.report == 0:
            print(f"iteration {i + 1} query mse {sum(window) / len(window):.4f}")
            window.clear()


if __name__ == "__main__":
    main()
