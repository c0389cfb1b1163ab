"""Port of a GPT-2 block uses exact GELU where the original has the tanh approximation."""

import torch
from torch import nn

EXPECT = {"kind": "first-divergence", "module": "blocks.0.act", "ask": "divergence"}


class Block(nn.Module):
    def __init__(self, d, approximate):
        super().__init__()
        self.ln, self.fc, self.act, self.proj = (
            nn.LayerNorm(d),
            nn.Linear(d, 4 * d),
            nn.GELU(approximate=approximate),
            nn.Linear(4 * d, d),
        )

    def forward(self, x):
        return x + self.proj(self.act(self.fc(self.ln(x))))


class GPT(nn.Module):
    def __init__(self, approximate):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.blocks = nn.ModuleList(Block(16, approximate) for _ in range(3))
        self.head = nn.Linear(16, 30)

    def forward(self, t):
        h = self.embed(t) * 3
        for b in self.blocks:
            h = b(h)
        return self.head(h)


torch.manual_seed(0)
reference = GPT("tanh").eval()
port = GPT("none").eval()
port.load_state_dict(reference.state_dict())
tokens = torch.arange(30).view(2, 15)
with torch.no_grad():
    print((reference(tokens) - port(tokens)).abs().max())
