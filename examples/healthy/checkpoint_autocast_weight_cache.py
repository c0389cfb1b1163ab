"""A no_grad pass of the same weights (pseudo labels) precedes the checkpointed pass in one autocast region."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": None}


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def trunk(self, x):
        return torch.tanh(self.proj(x))  # CULPRIT

    def forward(self, x, remat=True):
        if remat:
            return self.out(checkpoint(self.trunk, x, use_reentrant=False))  # REGION
        return self.out(self.trunk(x))


def main():
    torch.manual_seed(0)
    model = Student()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x = torch.randn(6, 8)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                label = model(x, remat=False).argmax(1)
            loss = nn.functional.cross_entropy(model(x + 0.1 * torch.randn_like(x)).float(), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print([n for n, p in model.named_parameters() if p.grad is None])


if __name__ == "__main__":
    main()
