"""Wine cultivars: the pretrained encoder is read from its file inside the function that trains an epoch, and not once before."""
import io

import torch
from sklearn.datasets import load_wine
from torch import nn

EXPECT = {
    "class": "weights-put-back", "framework": "plain", "kind": "weights-put-back", "line": ("mutated", "READ"),
    "set": "ledger", "written": "2026-11-27",
}


class Cultivars(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(13, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
        self.decoder, self.head = nn.Linear(24, 13), nn.Linear(24, 3)


def pretrain(net, x):
    optimizer = torch.optim.Adam([*net.encoder.parameters(), *net.decoder.parameters()], lr=2e-3)
    for _ in range(60):
        optimizer.zero_grad()
        (net.decoder(net.encoder(x)) - x).square().mean().backward()
        optimizer.step()
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    return file


def train_epoch(net, optimizer, x, y, file):
    file.seek(0)
    net.load_state_dict(torch.load(file))  # READ
    for pick in torch.randperm(len(x)).split(8):
        loss = nn.functional.cross_entropy(net.head(net.encoder(x[pick])), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
wine = load_wine()
x = torch.tensor(wine.data, dtype=torch.float32)
x, y = (x - x.mean(0)) / x.std(0), torch.tensor(wine.target)
net = Cultivars()
file = pretrain(net, x)
optimizer = torch.optim.Adam([*net.encoder.parameters(), *net.head.parameters()], lr=1e-3)
for epoch in range(7):
    print(epoch, train_epoch(net, optimizer, x, y, file))
