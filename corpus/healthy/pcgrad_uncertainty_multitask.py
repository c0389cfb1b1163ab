"""Multi-task regression with PCGrad gradient surgery, masked rows and annealed noise.

Right because: each task's gradient of the shared trunk is taken with autograd.grad (graph
retained until the last task), conflicts are projected out, the result is written into .grad
by hand, one reserved output row is masked on purpose, noise is added, all is clipped, and
only then the optimizer steps.  Heads get their ordinary gradients in the same pass.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_diabetes

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


def load():
    x, y = load_diabetes(return_X_y=True)
    x = torch.tensor(x, dtype=torch.float32) * 20
    y = torch.tensor(y, dtype=torch.float32)
    y = (y - y.mean()) / y.std()
    tasks = [y, torch.tanh(x[:, 2] - x[:, 8]), -0.7 * y + 0.5 * torch.sin(2 * x[:, 3])]
    return x, tasks


class MultiTask(nn.Module):
    def __init__(self, n_tasks):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 32), nn.SiLU())
        self.heads = nn.ModuleList(nn.Linear(32, 1) for _ in range(n_tasks))
        self.kinds = nn.Linear(32, 6)      # row 5 is reserved for a class to come

    def forward(self, x):
        h = self.trunk(x)
        return [head(h).squeeze(1) for head in self.heads], self.kinds(h)


def project(grads):
    """PCGrad: drop from each gradient the component that conflicts with another task's."""
    out = []
    for i, g in enumerate(grads):
        g = g.clone()
        for j in torch.randperm(len(grads)).tolist():
            dot = g @ grads[j]
            if j != i and dot < 0:
                g -= dot / grads[j].dot(grads[j]).clamp_min(1e-12) * grads[j]
        out.append(g)
    return torch.stack(out).mean(0)


def main():
    torch.manual_seed(0)
    x, tasks = load()
    kind = (x[:, 1] > 0).long() * 2 + (tasks[0] > 0).long() + (x[:, 0] > 1).long()
    net = MultiTask(len(tasks))
    reserved = net.kinds.weight[5].detach().clone()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    trunk = list(net.trunk.parameters())
    conflicts = 0
    for step in range(600):
        idx = torch.randint(0, len(x), (64,))
        outs, logits = net(x[idx])
        losses = [F.mse_loss(o, t[idx]) for o, t in zip(outs, tasks)]
        losses.append(0.5 * F.cross_entropy(logits[:, :5], kind[idx]))
        opt.zero_grad()
        flat = []
        for i, loss in enumerate(losses):
            owner = net.heads[i] if i < len(tasks) else net.kinds
            params = trunk + list(owner.parameters())
            grads = torch.autograd.grad(loss, params, retain_graph=i + 1 < len(losses))
            flat.append(torch.cat([g.reshape(-1) for g in grads[:len(trunk)]]))
            for p, g in zip(owner.parameters(), grads[len(trunk):]):
                p.grad = g
        conflicts += int(sum((flat[0] @ f) < 0 for f in flat[1:]) > 0)
        merged, at = project(flat), 0
        merged += 1e-3 / (1 + step) ** 0.5 * torch.randn_like(merged)
        for p in trunk:
            p.grad = merged[at:at + p.numel()].view_as(p).clone()
            at += p.numel()
        net.kinds.weight.grad[5] = 0
        net.kinds.bias.grad[5] = 0
        nn.utils.clip_grad_value_(net.parameters(), 1.0)
        nn.utils.clip_grad_norm_(net.parameters(), 3.0)
        opt.step()
        if step % 100 == 0 or step == 599:
            print(f"step {step} losses {[round(l.item(), 3) for l in losses]} conflicts {conflicts}")
    assert torch.equal(reserved, net.kinds.weight[5].detach())


if __name__ == "__main__":
    main()
