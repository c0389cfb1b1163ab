"""CRF/CTC style forward algorithm in log space starts with -inf; logaddexp by hand: exp(-inf - (-inf))."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT")}


def logadd(a, b):
    m = torch.maximum(a, b)
    return m + torch.log(torch.exp(a - m) + torch.exp(b - m))  # CULPRIT


class Aligner(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(5, 3)

    def forward(self, x):
        logp = self.score(x).log_softmax(-1)
        alpha = torch.full((len(x), 3), -float("inf"))
        alpha = torch.cat([logp[:, 0, :1], alpha[:, 1:]], 1)
        for t in range(1, x.shape[1]):
            stay, move = alpha, torch.cat([torch.full((len(x), 1), -float("inf")), alpha[:, :-1]], 1)
            alpha = logadd(stay, move) + logp[:, t]
        return -alpha[:, -1].mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Aligner()
    opt = torch.optim.Adam(model.parameters())
    for _ in range(2):
        loss = model(torch.randn(2, 6, 5))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(
        {
            "reproduced": not loss.isfinite().item() or any(p.isnan().any().item() for p in model.parameters()),
            "loss": loss.item(),
        }
    )
