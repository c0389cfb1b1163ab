"""A CLIP-like two-tower model, trained wholly in bfloat16 to save memory. It learns somewhat, but the temperature and
all LayerNorm weights stay exactly at their start values through the whole run: near 1 (and 2.66) a bfloat16 step is
larger than AdamW's update, which is rounded away each time."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "update rounds away",
    "kind": "update-rounds-away",
    "line": ["cause", "cause"],
    "what": "The model is kept in bfloat16 without float32 master weights; AdamW updates of about 5e-4 are below half the bfloat16 spacing at 1.0 and 2.66, so the LayerNorm weights and logit_scale never change although they get gradients.",
    "symptom": "no error; loss goes down slower than in float32, logit_scale in the log is constant",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(3)
torch.set_num_threads(1)


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1 = nn.Linear(64, 96)
        self.norm1 = nn.LayerNorm(96)
        self.fc2 = nn.Linear(96, dim)
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm2(self.fc2(F.gelu(self.norm1(self.fc1(x)))))


class TextTower(nn.Module):
    def __init__(self, dim, vocab=10):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.norm = nn.LayerNorm(dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, ids):
        return self.proj(self.norm(self.embed(ids)))


class TwoTower(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.image = ImageTower(dim)
        self.text = TextTower(dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, x, ids):
        a = F.normalize(self.image(x), dim=-1)
        b = F.normalize(self.text(ids), dim=-1)
        return self.logit_scale.exp() * a @ b.t()


digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
names = torch.tensor(digits.target)

model = TwoTower().to(torch.bfloat16)  # <-- cause
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
classes = torch.arange(10)

for step in range(301):
    idx = torch.randint(0, len(images), (64,))
    logits = model(images[idx].to(torch.bfloat16), classes)
    loss = F.cross_entropy(logits.float(), names[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        with torch.no_grad():
            acc = (model(images.to(torch.bfloat16), classes).argmax(1) == names).float().mean().item()
        print(f"step {step:3d}  loss {loss.item():.4f}  acc {acc:.3f}  logit_scale {model.logit_scale.item():.5f}"
              f"  norm1 in [{model.image.norm1.weight.min().item():.4f}, {model.image.norm1.weight.max().item():.4f}]")
