"""Healthy: pairwise ranking and masks by broadcasting."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(3)
SEATS, FEATS = 10, 6


class PlayerScorer(nn.Module):
    """Scores each player of an evening; evenings have between 4 and 10 players."""

    def __init__(self, width=40):
        super().__init__()
        self.local = nn.Conv1d(FEATS, width, 1)
        self.context = nn.Linear(width, width)
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, x, present):
        gate = present.unsqueeze(1).to(x.dtype)
        h = F.gelu(self.local(x)) * gate
        mean = h.sum(-1) / gate.sum(-1)
        h = h + self.context(mean).unsqueeze(-1)
        return self.out(F.gelu(h) * gate)


def evening(batch, generator):
    x = torch.randn(batch, FEATS, SEATS, generator=generator)
    n = torch.randint(4, SEATS + 1, (batch, 1), generator=generator)
    present = torch.arange(SEATS) < n
    strength = 1.3 * x[:, 0] - x[:, 1] + torch.sin(2 * x[:, 2]) + 0.7 * x[:, 3] * x[:, 4]
    strength = strength + 0.15 * torch.randn(batch, SEATS, generator=generator)
    x = x.masked_fill(~present.unsqueeze(1), 0.0)
    return x, present, strength.masked_fill(~present, -99.0)


def pairwise_rank_loss(score, strength, present):
    s = score.squeeze(1)
    gap = s.unsqueeze(2) - s.unsqueeze(1)
    wins = (strength.unsqueeze(2) > strength.unsqueeze(1)).float()
    both = present.unsqueeze(2) & present.unsqueeze(1)
    both = both & ~torch.eye(SEATS, dtype=torch.bool)
    per_pair = F.binary_cross_entropy_with_logits(gap, wins, reduction="none")
    return (per_pair * both).sum() / both.sum()


def centre_penalty(score, present):
    s = score.squeeze(1)
    mean = (s * present).sum(1, keepdim=True) / present.sum(1, keepdim=True)
    return ((s - mean.detach()).pow(2) * present).sum() / present.sum()


@torch.no_grad()
def pair_accuracy(model, generator):
    x, present, strength = evening(400, generator)
    s = model(x, present)[:, 0]
    gap = s[:, :, None] - s[:, None, :]
    truth = strength[:, :, None] > strength[:, None, :]
    both = present[:, :, None] & present[:, None, :] & ~torch.eye(SEATS, dtype=torch.bool)
    return ((gap > 0) == truth)[both].float().mean().item()


def main():
    g = torch.Generator().manual_seed(0)
    model = PlayerScorer()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    print(f"before: {pair_accuracy(model, torch.Generator().manual_seed(9)):.3f}")
    for step in range(500):
        x, present, strength = evening(32, g)
        score = model(x, present)
        loss = pairwise_rank_loss(score, strength, present) + 1e-3 * centre_penalty(score, present)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(step, f"{loss.item():.4f}")
    print(f"after: {pair_accuracy(model, torch.Generator().manual_seed(9)):.3f}")


if __name__ == "__main__":
    main()
