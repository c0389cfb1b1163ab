"""Switch-style mixture of experts where some experts get no token in some steps.

Right because: experts without tokens are skipped, so their gradient is None in that step
(set_to_none=True keeps Adam from moving them on stale moments); the router learns through
the gate value that scales the chosen expert and through the load-balancing loss.
The data come in domains (one or two per batch), so starvation is expected and temporary.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class SwitchLayer(nn.Module):
    def __init__(self, d, n_experts):
        super().__init__()
        self.router = nn.Linear(d, n_experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 48), nn.GELU(), nn.Linear(48, d)) for _ in range(n_experts))
        self.register_buffer("served", torch.zeros(n_experts, dtype=torch.long))

    def forward(self, x):
        logits = self.router(x)
        if self.training:
            logits = logits + 0.1 * torch.randn_like(logits)
        probs = logits.softmax(-1)
        gate, choice = probs.max(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = (choice == e).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            out = out.index_add(0, rows, gate[rows, None] * expert(x[rows]))
            if self.training:
                self.served[e] += 1
        share = F.one_hot(choice, len(self.experts)).float().mean(0)
        balance = len(self.experts) * (share * probs.mean(0)).sum()
        return x + out, balance


class Net(nn.Module):
    def __init__(self, n_experts=6):
        super().__init__()
        self.stem = nn.Linear(12, 32)
        self.moe = SwitchLayer(32, n_experts)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        h, balance = self.moe(torch.tanh(self.stem(x)))
        return self.head(h), balance


class Domains:
    """Each domain has its own nonlinear map; the first 4 features say which domain it is."""

    def __init__(self, seed, n=4):
        self.g = torch.Generator().manual_seed(seed)
        self.n = n
        self.w1 = torch.randn(n, 8, 6, generator=self.g) * 0.5
        self.w2 = torch.randn(n, 6, 3, generator=self.g) * 0.7

    def batch(self, size, which):
        d = which[torch.randint(0, len(which), (size,), generator=self.g)]
        x = torch.randn(size, 8, generator=self.g)
        y = torch.bmm(torch.tanh(torch.bmm(x[:, None], self.w1[d])), self.w2[d]).squeeze(1)
        return torch.cat([2.0 * F.one_hot(d, self.n).float(), x], 1), y


def main():
    torch.manual_seed(0)
    data, net = Domains(4), Net()
    test_x, test_y = data.batch(800, torch.arange(4))
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-3)
    starved = 0
    for step in range(700):
        which = torch.randperm(4, generator=data.g)[: 1 + step % 2]
        x, y = data.batch(96, which)
        pred, balance = net(x)
        loss = F.mse_loss(pred, y) + 0.01 * balance
        opt.zero_grad(set_to_none=True)
        loss.backward()
        starved += sum(e[0].weight.grad is None for e in net.moe.experts)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % 100 == 0 or step == 699:
            net.eval()
            with torch.no_grad():
                err = F.mse_loss(net(test_x)[0], test_y).item()
            net.train()
            print(f"step {step} test mse {err:.4f} starved so far {starved} served {net.moe.served.tolist()}")


if __name__ == "__main__":
    main()
