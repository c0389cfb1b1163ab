"""Unrolled reconstruction of blurred signals with a learned potential: every thirty steps a gradient-step denoiser is measured, which switches gradients on and afterwards off instead of back to what they were.

Report: https://github.com/deepinv/deepinv/issues/166 (calling GSDRUNet disables gradient computations until set_grad_enabled(True) is called the next time: potential_grad calls torch.set_grad_enabled(False) without enabling them again)
"""
import torch
from torch import nn

EXPECT = {
    "class": "dies-late", "kind": "grad-mode-disabled", "cut_marker": "CUT", "step": 30,
    "set": "eleventh", "written": "2026-11-23",
}


class GradientStepDenoiser(nn.Module):
    """x minus the gradient of a learned potential."""

    def __init__(self, width=24):
        super().__init__()
        self.potential = nn.Sequential(nn.Conv1d(2, width, 5, padding=2), nn.ELU(), nn.Conv1d(width, 1, 5, padding=2))

    def potential_grad(self, x, sigma):
        torch.set_grad_enabled(True)
        x = x.detach().requires_grad_()
        energy = self.potential(torch.cat([x, torch.full_like(x, sigma)], 1)).pow(2).sum()
        (gradient,) = torch.autograd.grad(energy, x)
        torch.set_grad_enabled(False)  # CUT
        return gradient

    def forward(self, x, sigma):
        return x - 0.05 * self.potential_grad(x, sigma)


class Unrolled(nn.Module):
    def __init__(self, blur, rounds=4, width=24):
        super().__init__()
        self.register_buffer("blur", blur)
        self.rate = nn.Parameter(torch.full((rounds,), 0.5))
        self.steps = nn.ModuleList(nn.Sequential(nn.Conv1d(1, width, 5, padding=2), nn.ELU(), nn.Conv1d(width, 1, 5, padding=2)) for _ in range(rounds))

    def physics(self, x):
        return nn.functional.conv1d(x, self.blur, padding=self.blur.shape[-1] // 2)

    def forward(self, y):
        x = y
        for rate, step in zip(self.rate, self.steps):
            x = x - rate * self.physics(self.physics(x) - y)
            x = x + step(x)
        return x


def psnr(a, b):
    return (-10 * torch.log10((a - b).pow(2).mean())).item()


def signals(count=16, length=64):
    steps = (torch.rand(count, 1, length) > 0.9) * torch.randn(count, 1, length)
    return steps.cumsum(-1)


torch.manual_seed(0)
kernel = torch.hann_window(9)[None, None] / torch.hann_window(9).sum()
model, denoiser = Unrolled(kernel), GradientStepDenoiser().requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 91):
    clean = signals()
    noisy = model.physics(clean) + 0.05 * torch.randn_like(clean)
    loss = nn.functional.l1_loss(model(noisy), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step} loss {loss.item():.4f} denoiser {psnr(denoiser(noisy, 0.05), clean):.2f} dB")
