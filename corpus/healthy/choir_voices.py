"""A gradient-reversal function, an adversarial head for domains, and a learning rate set by hand."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": None,
    "set": "twentyeighth",
    "written": "2026-11-29",
}


VOICES = 4
BANDS = 30


class Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


def sing(n, hall, gen):
    proto = torch.randn(VOICES, BANDS, generator=torch.Generator().manual_seed(61))
    echo = torch.randn(BANDS, generator=torch.Generator().manual_seed(62))
    voice = torch.randint(0, VOICES, (n,), generator=gen)
    x = proto[voice] + 0.9 * torch.randn(n, BANDS, generator=gen)
    if hall == 1:
        x = x + 1.2 * echo
        x[:, ::3] = x[:, ::3] * 0.6
    return x, voice


class Listener(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.ear = nn.Sequential(nn.Linear(BANDS, width), nn.ReLU(), nn.Linear(width, 32), nn.ReLU())
        self.voice = nn.Linear(32, VOICES)
        self.hall = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, strength=0.0):
        h = self.ear(x)
        return self.voice(h), self.hall(Turn.apply(h, strength)).squeeze(-1)


@torch.no_grad()
def accuracy(model, data):
    return (model(data[0])[0].argmax(-1) == data[1]).float().mean().item()


def main(steps=500):
    torch.manual_seed(60)
    gen = torch.Generator().manual_seed(63)
    chapel = sing(1500, 0, gen)
    abbey_x, _ = sing(1500, 1, gen)
    check_chapel = sing(600, 0, gen)
    check_abbey = sing(600, 1, gen)

    model = Listener()
    opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    for step in range(steps):
        progress = step / steps
        strength = 0.6 * (2.0 / (1.0 + math.exp(-10 * progress)) - 1.0)
        for group in opt.param_groups:
            group["lr"] = 0.03 / (1 + 10 * progress) ** 0.75
        a = torch.randint(0, len(chapel[0]), (64,), generator=gen)
        b = torch.randint(0, len(abbey_x), (64,), generator=gen)
        voice, hall_a = model(chapel[0][a], strength)
        _, hall_b = model(abbey_x[b], strength)
        known = F.cross_entropy(voice, chapel[1][a])
        where = 0.5 * (
            F.binary_cross_entropy_with_logits(hall_a, torch.zeros_like(hall_a))
            + F.binary_cross_entropy_with_logits(hall_b, torch.ones_like(hall_b))
        )
        opt.zero_grad()
        (known + where).backward()
        opt.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1:3d} voice {known.item():.4f} hall {where.item():.4f} "
                  f"chapel acc {accuracy(model, check_chapel):.3f} abbey acc {accuracy(model, check_abbey):.3f}")


if __name__ == "__main__":
    main()
