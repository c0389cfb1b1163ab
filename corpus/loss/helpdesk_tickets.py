"""Tickets are routed by a Transformer encoder whose src_key_padding_mask is True for the words, not for the padding.

After Stack Overflow 62170439 and discuss.pytorch.org/t/179371.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"class": "inverted-mask", "kind": "mask-inverted", "line": ("cause", "HERE"), "set": "twentyseventh", "written": "2026-11-29"}

torch.manual_seed(11)

PAD, CLS = 0, 1
TEAMS = ["network", "printer", "account", "billing"]
WORDS = {
    "network": "wifi router cable vpn latency switch dns".split(),
    "printer": "toner paper jam tray ink scanner driver".split(),
    "account": "password login token locked profile badge reset".split(),
    "billing": "invoice refund card tax receipt charge quote".split(),
}
FILLER = ("please the my is not since monday help again could you it was with for office "
          "desk thanks hello urgent still broken how when").split()
VOCAB = {w: i + 2 for i, w in enumerate(sorted(set(FILLER + sum(WORDS.values(), []))))}
MAXLEN = 28


def make_ticket(g):
    team = torch.randint(0, len(TEAMS), (1,), generator=g).item()
    n = torch.randint(6, 22, (1,), generator=g).item()
    toks = [FILLER[i] for i in torch.randint(0, len(FILLER), (n,), generator=g).tolist()]
    other = (team + torch.randint(1, 4, (1,), generator=g).item()) % 4
    picks = torch.randint(0, 7, (3,), generator=g).tolist()
    spots = torch.randperm(n, generator=g)[:3].tolist()
    toks[spots[0]] = WORDS[TEAMS[team]][picks[0]]
    toks[spots[1]] = WORDS[TEAMS[team]][picks[1]]
    toks[spots[2]] = WORDS[TEAMS[other]][picks[2]]
    return [CLS] + [VOCAB[t] for t in toks], team


def build(n, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.full((n, MAXLEN), PAD)
    labels = torch.zeros(n, dtype=torch.long)
    for i in range(n):
        t, y = make_ticket(g)
        ids[i, : len(t)] = torch.tensor(t)
        labels[i] = y
    return ids, labels


class TicketRouter(nn.Module):
    def __init__(self, vocab, dim=48, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(1, MAXLEN, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 96, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, len(TEAMS))

    def forward(self, ids):
        mask = ids.ne(PAD)  # HERE
        h = self.tok(ids) + self.pos
        h = self.encoder(h, src_key_padding_mask=mask)
        return self.out(h[:, 0])


def evaluate(model, ids, labels):
    model.eval()
    with torch.no_grad():
        acc = (model(ids).argmax(1) == labels).float().mean().item()
    model.train()
    return acc


def main():
    ids, labels = build(2000, 0)
    vids, vlabels = build(400, 1)
    model = TicketRouter(len(VOCAB) + 2)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    steps = 300
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=2e-3, total_steps=steps, pct_start=0.15)
    running = None
    for step in range(steps):
        idx = torch.randint(0, len(ids), (48,))
        loss = F.cross_entropy(model(ids[idx]), labels[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} loss {running:.3f} val acc {evaluate(model, vids, vlabels):.3f}")


if __name__ == "__main__":
    main()
