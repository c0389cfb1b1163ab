"""Fit() collects the parameters to clip once; at step 120 the network is widened and replaced, the optimizer is rebuilt
but the clip list still holds the old network's parameters, so the Poisson loss's large gradients are no longer
clipped.

Report: PyTorch forum: clip_grad_norm_ has no effect after the model object was replaced (parameters of another model
are clipped)
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "clipping-without-effect",
    "line": ("cause", "HERE"),
    "plain": "nll becomes NaN within 60 steps of the widening at step 120; test nll -14.77 when the clip list is taken from the new network",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


def bays(n, gen):
    x = torch.randn(n, 6, generator=gen)
    rate = torch.exp(0.9 * x[:, 0] - 0.6 * x[:, 1] + 0.5 * torch.sin(2 * x[:, 2]) + 1.5)
    return x, torch.poisson(rate, generator=gen)


class CountNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Linear(6, width)
        self.b = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(F.relu(self.b(F.relu(self.a(x))))).squeeze(1)

    @torch.no_grad()
    def widened(self, width):
        new, old = CountNet(width), self.a.out_features
        new.a.weight[:old], new.a.bias[:old] = self.a.weight, self.a.bias
        new.b.weight[:old, :old], new.b.bias[:old] = self.b.weight, self.b.bias
        new.b.weight[:old, old:] = 0.0
        new.out.weight[:, :old], new.out.bias[:] = self.out.weight, self.out.bias
        new.out.weight[:, old:] = 0.0
        return new


class Survey:
    def __init__(self, lr=0.02, max_norm=1.0):
        self.net = CountNet(16)
        self.lr, self.max_norm = lr, max_norm
        self.rebuild()

    def rebuild(self):
        self.opt = torch.optim.SGD(self.net.parameters(), lr=self.lr, momentum=0.9)

    def fit(self, gen, steps=500, widen_at=120):
        params = list(self.net.parameters())
        log = []
        for step in range(steps):
            if step == widen_at:
                self.net = self.net.widened(64)
                self.rebuild()
            x, y = bays(32, gen)
            self.opt.zero_grad()
            loss = F.poisson_nll_loss(self.net(x), y, log_input=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(params, self.max_norm)  # HERE
            self.opt.step()
            log.append(loss.item())
            if (step + 1) % 60 == 0:
                print(f"step {step + 1:4d} nll {sum(log[-60:]) / 60:.4f}")
        return log


def main():
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(40)
    survey = Survey()
    survey.fit(gen)
    x, y = bays(4000, gen)
    with torch.no_grad():
        nll = F.poisson_nll_loss(survey.net(x), y, log_input=True).item()
    print(f"final test nll {nll:.4f}")


if __name__ == "__main__":
    main()
