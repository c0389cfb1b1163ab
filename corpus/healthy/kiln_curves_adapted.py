"""Healthy: second-order meta-learning with functional_call and learned inner rates."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

EXPECT = {
    "kind": None,
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class KilnTasks:
    """Every kiln heats along its own curve; a few probe readings are given per firing."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)

    def sample(self, shots=10, queries=15):
        amp = 0.5 + 1.5 * torch.rand(1, generator=self.gen)
        shift = 3.14 * torch.rand(1, generator=self.gen)
        t = torch.rand(shots + queries, 1, generator=self.gen) * 8 - 4
        y = amp * torch.sin(t + shift)
        return t[:shots], y[:shots], t[shots:], y[shots:]


class Curve(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.body(x))


class MetaLearner(nn.Module):
    def __init__(self, steps=2):
        super().__init__()
        self.net = Curve()
        self.steps = steps
        self.log_lr = nn.ParameterDict({
            name.replace(".", "_"): nn.Parameter(torch.tensor(-3.0))
            for name, _ in self.net.named_parameters()
        })

    def adapt(self, x, y, create_graph):
        fast = dict(self.net.named_parameters())
        for _ in range(self.steps):
            loss = F.mse_loss(functional_call(self.net, fast, (x,)), y)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=create_graph)
            fast = {
                k: p - self.log_lr[k.replace(".", "_")].exp() * g
                for (k, p), g in zip(fast.items(), grads)
            }
        return fast

    def query_loss(self, task, create_graph=True):
        xs, ys, xq, yq = task
        fast = self.adapt(xs, ys, create_graph)
        return F.mse_loss(functional_call(self.net, fast, (xq,)), yq)


def held_out(meta, n=50):
    tasks = KilnTasks(4242)
    return sum(meta.query_loss(tasks.sample(), create_graph=False).item() for _ in range(n)) / n


def main():
    torch.manual_seed(18)
    meta, tasks = MetaLearner(), KilnTasks(181)
    opt = torch.optim.Adam([
        {"params": meta.net.parameters(), "lr": 3e-3},
        {"params": meta.log_lr.parameters(), "lr": 1e-2},
    ])
    per_step = 6
    for it in range(400):
        opt.zero_grad()
        total = 0.0
        for _ in range(per_step):
            loss = meta.query_loss(tasks.sample()) / per_step
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(meta.parameters(), 2.0)
        opt.step()
        if it % 80 == 0 or it == 399:
            rates = [p.exp().item() for p in meta.log_lr.values()]
            print(f"iter {it:4d}  query {total:.4f}  held-out {held_out(meta):.4f}  "
                  f"inner lr {min(rates):.3f}..{max(rates):.3f}")


if __name__ == "__main__":
    main()
