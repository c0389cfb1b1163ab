"""Self-distillation of a small CNN: the teacher of the second phase is not a copy, freezing it freezes the encoder that should go on learning."""
import torch
from torch import nn

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "step": 450,
    "parameters": ["encoder.0.weight", "encoder.0.bias", "encoder.2.weight", "encoder.2.bias"],
    "set": "late", "written": "2026-11-22",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 12, 3), nn.ReLU())
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        z = self.encoder(x).mean((2, 3))
        return z, self.head(z)


class Distiller:
    def __init__(self, net):
        self.encoder = net.encoder
        for p in self.encoder.parameters():
            p.requires_grad_(False)  # CUT

    def loss(self, x, z):
        return nn.functional.mse_loss(z, self.encoder(x).mean((2, 3)))


def batch(n=16):
    y = torch.randint(0, 4, (n,))
    x = 0.5 * torch.randn(n, 1, 10, 10)
    x[torch.arange(n), 0, 2 * y] += 1
    return x, y


def validate(net):
    net.eval()
    with torch.no_grad():
        x, y = batch(200)
        accuracy = (net(x)[1].argmax(1) == y).float().mean().item()
    net.train()
    return accuracy


torch.manual_seed(0)
net, distiller = Net(), None
opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.0)
for epoch in range(8):
    if epoch == 5:
        distiller = Distiller(net)
    for _ in range(90):
        x, y = batch()
        z, logits = net(x)
        loss = nn.functional.cross_entropy(logits, y)
        if distiller is not None:
            loss = loss + 0.5 * distiller.loss(x + 0.1 * torch.randn_like(x), z)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.3f} validation {validate(net):.3f}")
