"""Optimizer steps inside the backward pass: one tiny optimizer for each parameter.

Right because: register_post_accumulate_grad_hook steps the parameter's own optimizer as
soon as its gradient is complete and then drops the gradient (grad is None when backward()
returns, on purpose); gradients are clipped per tensor by a tensor hook; a forward hook
collects activation statistics detached, and a full backward hook only reads.
There is neither zero_grad() nor step() in the loop: none is needed.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_wine

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Net(nn.Module):
    def __init__(self, n_in, n_out, d=64):
        super().__init__()
        self.inp = nn.Linear(n_in, d)
        self.mid = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU()) for _ in range(3))
        self.out = nn.Linear(d, n_out)

    def forward(self, x):
        h = self.inp(x)
        for m in self.mid:
            h = h + m(h)
        return self.out(h)


class FusedStepper:
    def __init__(self, net, lr):
        self.optimizers, self.handles = {}, []
        for p in net.parameters():
            self.optimizers[p] = torch.optim.Adam([p], lr=lr, foreach=False)
            self.handles.append(p.register_hook(self.clip))
            self.handles.append(p.register_post_accumulate_grad_hook(self.apply))

    @staticmethod
    def clip(grad):
        n = grad.norm()
        return grad * (1.0 / n) if n > 1.0 else grad

    def apply(self, p):
        opt = self.optimizers[p]
        opt.step()
        opt.zero_grad(set_to_none=True)

    def set_lr(self, lr):
        for opt in self.optimizers.values():
            opt.param_groups[0]["lr"] = lr

    def close(self):
        for h in self.handles:
            h.remove()


class Monitor:
    def __init__(self, net):
        self.act, self.flow = {}, {}
        for name, m in net.named_modules():
            if isinstance(m, nn.Linear):
                m.register_forward_hook(lambda mod, i, o, n=name: self.act.__setitem__(n, o.detach().std().item()))
                m.register_full_backward_hook(
                    lambda mod, gi, go, n=name: self.flow.__setitem__(n, go[0].norm().item()))


def noisy(x, gen):
    return x + 0.3 * torch.randn(x.shape, generator=gen)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    x, y = load_wine(return_X_y=True)
    x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    y = torch.tensor(y)
    perm = torch.randperm(len(x), generator=gen)
    tr, te = perm[:130], perm[130:]
    net = Net(13, 3)
    stepper, monitor = FusedStepper(net, 1e-3), Monitor(net)
    for step in range(300):
        stepper.set_lr(1e-3 * min(1.0, (step + 1) / 20))
        idx = tr[torch.randint(0, len(tr), (32,), generator=gen)]
        loss = F.cross_entropy(net(noisy(x[idx], gen)), y[idx], reduction="sum")
        loss.backward()
        assert all(p.grad is None for p in net.parameters())
        if step % 50 == 49:
            with torch.no_grad():
                acc = (net(x[te]).argmax(1) == y[te]).float().mean().item()
            print(f"step {step} sum loss {loss.item():.3f} test acc {acc:.3f} act {monitor.act['out']:.2f} "
                  f"flow {monitor.flow['out']:.3f}")
    stepper.close()


if __name__ == "__main__":
    main()
