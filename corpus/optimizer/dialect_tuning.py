"""A character language model is trained on one dialect and then fine-tuned on another in bfloat16; the fine-tuning hardly changes it.

Report: https://github.com/workofart/ml-by-hand/pull/85 (weights kept in bf16 without a float32 master copy: each
small Adam update is rounded back to the old value, 0 of 768 weights moved after 100 steps).
Effect: in the second stage most weights (all LayerNorm scales and nearly all others) do not move, and the loss on the
new dialect ends far above the one of the same fine-tuning with float32 weights under autocast.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "update-rounds-away", "line": ("cause", "CAUSE"),
    "what": "the weights themselves are bfloat16, so the updates at this small learning rate are rounded away and the parameters stay where they are; keep float32 weights and use autocast (or float32 master weights)",
    "set": "twentyfirst", "written": "2026-11-27",
}

VOCAB, DIM, LEN = 24, 64, 20


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.norm1 = nn.LayerNorm(2 * DIM)
        self.fc1 = nn.Linear(2 * DIM, 256)
        self.norm2 = nn.LayerNorm(256)
        self.fc2 = nn.Linear(256, VOCAB)

    def forward(self, ids):
        e = self.emb(ids)
        h = self.norm1(torch.cat([e[:, :-1], e[:, 1:]], dim=-1))
        return self.fc2(self.norm2(F.gelu(self.fc1(h))))


def sample(table, n, gen):
    seq = [torch.randint(0, VOCAB, (n,), generator=gen), torch.randint(0, VOCAB, (n,), generator=gen)]
    for _ in range(LEN):
        nxt = table[seq[-2], seq[-1]]
        noise = torch.rand(n, generator=gen) < 0.1
        seq.append(torch.where(noise, torch.randint(0, VOCAB, (n,), generator=gen), nxt))
    return torch.stack(seq, 1)


def lm_loss(model, seq):
    logits = model(seq[:, :-1])
    return F.cross_entropy(logits.float().reshape(-1, VOCAB), seq[:, 2:].reshape(-1))


def train(model, table, steps, lr, gen):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    for step in range(steps):
        loss = lm_loss(model, sample(table, 32, gen))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"  step {step} lr {lr} loss {loss.item():.3f}")


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(5)
    north = torch.randint(0, VOCAB, (VOCAB, VOCAB), generator=gen)
    south = north.clone()
    rows = torch.randperm(VOCAB, generator=gen)[:8]
    south[rows] = torch.randint(0, VOCAB, (8, VOCAB), generator=gen)

    model = CharLM()
    print("north")
    train(model, north, 150, 3e-3, gen)

    print("south")
    model = model.to(torch.bfloat16)  # CAUSE
    before = [p.detach().clone() for p in model.parameters()]
    train(model, south, 240, 5e-5, gen)
    held_out = sample(south, 400, gen)
    with torch.no_grad():
        print("held-out loss", round(lm_loss(model, held_out).item(), 4))
    moved = sum((a != b).sum().item() for a, b in zip(before, model.parameters()))
    print("weights changed", moved, "of", sum(b.numel() for b in before))


if __name__ == "__main__":
    main()
