"""Diffusion model on 2-d moons with an averaged copy of the weights that is swapped in for evaluation and back out before training goes on.
Report: none (healthy: the averaged weights are separate clones, the training weights are stored and put back after each evaluation)
"""
import contextlib

import torch
import torch.nn as nn
from sklearn.datasets import make_moons

EXPECT = {"framework": "plain", "kind": None, "set": "twentyfirst", "written": "2026-11-27"}

T = 40
betas = torch.linspace(1e-3, 0.15, T)
alpha_bar = torch.cumprod(1 - betas, dim=0)


class Score(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.t = nn.Embedding(T, 16)
        self.net = nn.Sequential(nn.Linear(18, width), nn.SiLU(), nn.Dropout(0.05), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.t(t)], dim=1))


class Average:
    def __init__(self, model, decay=0.98):
        self.model, self.decay = model, decay
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        for k, v in self.model.named_parameters():
            self.shadow[k].lerp_(v, 1 - self.decay)

    @contextlib.contextmanager
    def swapped(self):
        kept = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        with torch.no_grad():
            for k, v in self.model.named_parameters():
                v.copy_(self.shadow[k])
        try:
            yield self.model
        finally:
            with torch.no_grad():
                for k, v in self.model.named_parameters():
                    v.copy_(kept[k])


def diffusion_loss(model, x, t, noise):
    a = alpha_bar[t].unsqueeze(1)
    return nn.functional.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)


def main():
    torch.manual_seed(0)
    data = torch.tensor(make_moons(2000, noise=0.05, random_state=0)[0], dtype=torch.float32)
    data = (data - data.mean(0)) / data.std(0)
    fixed_t, fixed_noise = torch.randint(0, T, (500,)), torch.randn(500, 2)
    model = Score()
    average = Average(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(390):
        x = data[torch.randint(0, 1500, (128,))]
        loss = diffusion_loss(model, x, torch.randint(0, T, (128,)), torch.randn(128, 2))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update()
        if (step + 1) % 65 == 0:
            with average.swapped() as eval_model:
                eval_model.eval()
                with torch.no_grad():
                    val = diffusion_loss(eval_model, data[1500:], fixed_t, fixed_noise).item()
                eval_model.train()
            print(f"step {step + 1:3d} train {loss.item():.4f} averaged val {val:.4f}")


if __name__ == "__main__":
    main()
