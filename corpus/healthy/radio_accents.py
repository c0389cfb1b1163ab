"""Healthy: a mean teacher, learned weights of losses, and a layer that is frozen until step 120."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

EXPECT = {
    "kind": None,
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(53)

ACCENTS, FEAT = 5, 10
SHIFT = torch.randn(ACCENTS, FEAT) * 0.5
RATE = torch.linspace(0.3, 1.1, ACCENTS)


def clips(n):
    xs, ys = [], torch.randint(0, ACCENTS, (n,))
    for k in ys.tolist():
        t = int(torch.randint(8, 25, (1,)))
        wave = torch.sin(RATE[k] * torch.arange(t)[:, None] + torch.rand(1, FEAT) * 0.5)
        xs.append(wave + SHIFT[k] + 0.9 * torch.randn(t, FEAT))
    return xs, ys


def collate(xs):
    return pad_sequence(xs, batch_first=True), torch.tensor([len(x) for x in xs])


class AccentNet(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.front = nn.Linear(FEAT, 24)
        self.rnn = nn.GRU(24, hidden, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.cls = nn.Linear(hidden, ACCENTS)
        self.rate = nn.Linear(hidden, 1)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x, lengths):
        h = F.gelu(self.front(x))
        packed = pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.rnn(packed)
        z = self.drop(last[0])
        return self.cls(z), self.rate(z).squeeze(-1)


class MeanTeacher:
    def __init__(self, net, decay=0.98):
        self.net = net
        self.teacher = copy.deepcopy(net).eval()
        for p in self.teacher.parameters():
            p.requires_grad = False
        self.decay = decay
        weights = [p for n, p in net.named_parameters() if n != "log_var"]
        self.opt = torch.optim.AdamW([
            {"params": weights, "lr": 3e-3},
            {"params": [net.log_var], "lr": 1e-2, "weight_decay": 0.0},
        ])
        self.net.front.requires_grad_(False)

    def supervised(self, xs, ys):
        x, n = collate(xs)
        logits, rate = self.net(x, n)
        parts = torch.stack([F.cross_entropy(logits, ys), F.mse_loss(rate, RATE[ys])])
        s = self.net.log_var
        return (torch.exp(-s) * parts + 0.5 * s).sum(), parts.detach()

    def consistency(self, xs):
        x, n = collate(xs)
        with torch.no_grad():
            target = F.softmax(self.teacher(x, n)[0], -1)
        logits, _ = self.net(x + 0.3 * torch.randn_like(x), n)
        sure = (target.max(-1).values > 0.8).float()
        kl = F.kl_div(F.log_softmax(logits, -1), target, reduction="none").sum(-1)
        return (kl * sure).sum() / sure.sum().clamp(min=1)

    def step(self, xs, ys, extra, ramp):
        sup, parts = self.supervised(xs, ys)
        loss = sup + ramp * self.consistency(extra)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 2.0)
        self.opt.step()
        with torch.no_grad():
            for a, b in zip(self.teacher.parameters(), self.net.parameters()):
                a.mul_(self.decay).add_(b, alpha=1 - self.decay)
        return parts

    @torch.no_grad()
    def score(self, xs, ys):
        x, n = collate(xs)
        return (self.teacher(x, n)[0].argmax(1) == ys).float().mean().item()


def main():
    lx, ly = clips(160)
    ux, _ = clips(600)
    vx, vy = clips(300)
    mt = MeanTeacher(AccentNet())
    for step in range(360):
        if step == 120:
            mt.net.front.requires_grad_(True)
        i = torch.randint(0, len(lx), (24,)).tolist()
        j = torch.randint(0, len(ux), (24,)).tolist()
        parts = mt.step([lx[k] for k in i], ly[i], [ux[k] for k in j], ramp=min(1.0, step / 150))
        if (step + 1) % 60 == 0:
            print(f"step {step + 1} class loss {parts[0]:.3f} rate loss {parts[1]:.4f} "
                  f"log var {mt.net.log_var.detach().numpy().round(2)} val acc {mt.score(vx, vy):.3f}")


if __name__ == "__main__":
    main()
