"""Voices of a choir. After a warm-up the adapters of all layers are cleared by name, to begin again; the head trains on."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "both factors of adapters set to zero late, others train", "framework": "plain", "kind": "zero-grad", "line": ("cut", "HERE"),
    "set": "ledger", "written": "2026-11-29",
}


class Adapted(nn.Module):
    def __init__(self, width, rank=3):
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(width, rank) / width**0.5)
        self.lora_b = nn.Parameter(torch.zeros(rank, width))

    def forward(self, x):
        return self.base(x) + x @ self.lora_a @ self.lora_b  # HERE


def main():
    torch.manual_seed(12)
    model = nn.Sequential(Adapted(24), nn.Tanh(), Adapted(24), nn.Tanh(), nn.Linear(24, 4))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    voices = torch.randn(4, 24)
    for step in range(1, 401):
        part = torch.randint(0, 4, (48,))
        loss = F.cross_entropy(model(voices[part] + torch.randn(48, 24)), part)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 120:
            for name, p in model.named_parameters():
                if "lora" in name:
                    p.data.zero_()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
