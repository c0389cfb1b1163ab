"""DP-SGD on breast-cancer data: per-sample gradients with torch.func, clipped and noised.

Right because: per-sample gradients come from vmap(grad(...)) on functional_call, so there is
no backward() at all; each sample's gradient is clipped, the sum is noised, and the mean is
assigned to .grad before the optimizer steps.  Poisson sampling gives batches of varying size.
A forward-mode jvp along the update is used as a read-only diagnostic.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer
from torch.func import functional_call, grad_and_value, jvp, vmap

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


def make_model():
    return nn.Sequential(nn.Linear(30, 32), nn.GroupNorm(4, 32), nn.Tanh(), nn.Linear(32, 2))


class PrivateStep:
    def __init__(self, net, clip, noise, expected):
        self.net, self.clip, self.noise, self.expected = net, clip, noise, expected

        def sample_loss(params, x, y):
            out = functional_call(net, params, (x.unsqueeze(0),))
            return F.cross_entropy(out, y.unsqueeze(0))

        self.per_sample = vmap(grad_and_value(sample_loss), in_dims=(None, 0, 0))

    def weights(self):
        return {n: p.detach() for n, p in self.net.named_parameters()}

    def __call__(self, x, y):
        grads, losses = self.per_sample(self.weights(), x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factor = (self.clip / norms.clamp_min(1e-9)).clamp(max=1.0)
        for n, p in self.net.named_parameters():
            total = torch.einsum("b,b...->...", factor, grads[n])
            total = total + self.noise * self.clip * torch.randn_like(total)
            p.grad = total / self.expected
        return losses.mean().item(), (factor < 1).float().mean().item()

    def slope(self, x, y):
        """Directional derivative of the batch loss along -grad, by forward mode."""
        w = self.weights()
        tangent = {n: -p.grad for n, p in self.net.named_parameters()}
        f = lambda params: F.cross_entropy(functional_call(self.net, params, (x,)), y)
        return jvp(f, (w,), (tangent,))[1].item()


def poisson(n, rate, gen):
    return (torch.rand(n, generator=gen) < rate).nonzero().squeeze(1)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    x, y = load_breast_cancer(return_X_y=True)
    x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    y = torch.tensor(y)
    perm = torch.randperm(len(x), generator=gen)
    x, y = x[perm], y[perm]
    net = make_model()
    rate = 0.15
    private = PrivateStep(net, clip=1.0, noise=0.6, expected=rate * 400)
    opt = torch.optim.SGD(net.parameters(), lr=0.15, momentum=0.8)
    for step in range(500):
        idx = poisson(400, rate, gen)
        if len(idx) == 0:
            continue
        loss, clipped = private(x[idx], y[idx])
        if step % 100 == 0 or step == 499:
            with torch.no_grad():
                acc = (net(x[400:]).argmax(1) == y[400:]).float().mean().item()
            print(f"step {step} batch {len(idx)} loss {loss:.4f} clipped {clipped:.2f} "
                  f"slope {private.slope(x[idx], y[idx]):.4f} test acc {acc:.3f}")
        opt.step()
        opt.zero_grad()


if __name__ == "__main__":
    main()
