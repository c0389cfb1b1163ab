"""Fitting a wave field with a hand-written hard-swish whose input range is widened during training.

Source: https://github.com/BobMcDear/attorch/issues/16 and https://github.com/pytorch/pytorch/issues/147801
Plain PyTorch 2.13: silent; a gradcheck on inputs from randn() * 0.5 passes.
"""
import torch
from torch import nn

EXPECT = {
    "class": "g", "kind": "wrong-backward", "function": "HardSwish", "node": "HardSwishBackward", "input_index": 0,
    "apply_marker": "APPLY", "backward_marker": "BACKWARD", "step": 250, "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class HardSwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (x + 3).clamp(0, 6) / 6

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        slope = (2 * x + 3) / 6
        return grad * slope * (x > -3)  # BACKWARD


class Unit(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.linear = nn.Linear(inputs, width)
        self.register_buffer("gain", torch.tensor(2.0))

    def forward(self, x):
        return HardSwish.apply(self.gain * torch.tanh(self.linear(x)))  # APPLY


class Field(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.first, self.second, self.third = Unit(3, width), Unit(width, width), Unit(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, where):
        h = self.first(where)
        h = h + self.second(h)
        return self.out(h + self.third(h)).squeeze(1)


class Widening:
    """Doubles and more the range of every unit once, in the given step."""

    def __init__(self, model, at, to):
        self.model, self.at, self.to = model, at, to

    def __call__(self, step):
        if step == self.at:
            for module in self.model.modules():
                if isinstance(module, Unit):
                    module.gain.fill_(self.to)


def sample(count=128):
    where = torch.rand(count, 3) * 2 - 1
    x, y, t = where.unbind(1)
    return where, torch.sin(3 * x + 2 * t) * torch.cos(2 * y - t) + 0.3 * torch.sin(6 * x * y)


def main():
    torch.manual_seed(0)
    field = Field()
    widen = Widening(field, at=250, to=5.0)
    opt = torch.optim.Adam(field.parameters(), lr=2e-3)
    decay = torch.optim.lr_scheduler.ExponentialLR(opt, 0.998)
    for step in range(700):
        widen(step)
        where, wanted = sample()
        loss = nn.functional.mse_loss(field(where), wanted)
        opt.zero_grad()
        loss.backward()
        opt.step()
        decay.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
