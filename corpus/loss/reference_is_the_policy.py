"""A policy writes short melodies, and the divergence from a reference model is to keep it near the melodies that it was trained
on. The reference is the policy itself, scored a second time in the update, so the penalty is zero and holds nothing back."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "term of a loss whose gradient cancels",
    "kind": "gradient-cancels",
    "line": ["cause", "cause"],
    "what": "ref_logps come from the policy, with a graph: both sides of the divergence are the same.",
    "symptom": "no error; the divergence is logged as 0, and the policy repeats one note",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(14)
torch.set_num_threads(1)


class Composer(nn.Module):
    def __init__(self, notes=12, width=24):
        super().__init__()
        self.table = nn.Embedding(notes + 1, width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, notes)

    def forward(self, tokens):
        return self.out(self.cell(self.table(tokens))[0])


def token_logps(model, tokens):
    logits = model(tokens[:, :-1]).log_softmax(-1)
    return logits.gather(-1, tokens[:, 1:, None]).squeeze(-1)


@torch.no_grad()
def compose(model, n, length=8):
    tokens = torch.full((n, 1), 12)
    for _ in range(length):
        probs = model(tokens)[:, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(probs, 1)], 1)
    return tokens


policy = Composer()
optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
for step in range(120):
    tokens = compose(policy, 32)
    rewards = (tokens[:, 1:] == 7).float().mean(1)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    logps = token_logps(policy, tokens)
    ref_logps = token_logps(policy, tokens)  # <-- cause
    kl = torch.exp(ref_logps - logps) - (ref_logps - logps) - 1
    ratio = torch.exp(logps - logps.detach())
    loss = (-ratio * advantages[:, None] + 0.1 * kl).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(f"step {step + 1}  reward {rewards.mean():.3f}  divergence {kl.mean().item():.4f}")
