"""BYOL on the digits: the target network never gets a gradient, its output is detached, and its weights and buffers are
overwritten after each step by hand. This is how the method is meant to be (stop-gradient and a moving average copy with the
buffers); the loss goes down and the features do not collapse."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

EXPECT = {
    "class": "healthy: intended detach and EMA copy",
    "kind": "none",
    "what": "The target network is deliberately without gradient and outside the optimizer; it follows the online network by a moving average of the parameters and a copy of the buffers.",
    "symptom": "loss goes down, no collapse (spread of the features does not go to zero), linear probe about 88 %",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(23)
torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, dim))
        self.projector = nn.Sequential(
            nn.Linear(dim, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 24))

    def forward(self, x):
        return self.projector(self.net(x))


class BYOL(nn.Module):
    def __init__(self, momentum=0.97):
        super().__init__()
        self.online = Encoder()
        self.predictor = nn.Sequential(nn.Linear(24, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24))
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters():
            p.requires_grad_(False)
        self.momentum = momentum

    def one_side(self, a, b):
        predicted = F.normalize(self.predictor(self.online(a)), dim=1)
        with torch.no_grad():
            wanted = F.normalize(self.target(b), dim=1).detach()
        return 2 - 2 * (predicted * wanted).sum(1).mean()

    def forward(self, a, b):
        return self.one_side(a, b) + self.one_side(b, a)

    @torch.no_grad()
    def update_target(self):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.mul_(self.momentum).add_(o, alpha=1 - self.momentum)
        for t, o in zip(self.target.buffers(), self.online.buffers()):
            t.copy_(o)


def augment(x):
    image = x.view(-1, 8, 8)
    dy, dx = torch.randint(-1, 2, (2,)).tolist()
    image = torch.roll(image, (dy, dx), dims=(1, 2))
    keep = (torch.rand_like(image) > 0.15).float()
    return (image * keep + 0.05 * torch.randn_like(image)).flatten(1)


def probe(model, x, y):
    model.eval()
    with torch.no_grad():
        h = model.online.net(x).numpy()
    model.train()
    clf = LogisticRegression(max_iter=200).fit(h[:1200], y[:1200])
    return clf.score(h[1200:], y[1200:])


digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
model = BYOL()
optimizer = torch.optim.Adam([*model.online.parameters(), *model.predictor.parameters()], lr=2e-3)
for epoch in range(6):
    order = torch.randperm(len(x))
    total = 0.0
    for i in range(0, len(x) - 127, 128):
        xb = x[order[i:i + 128]]
        loss = model(augment(xb), augment(xb))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.update_target()
        total += loss.item() / 14
    with torch.no_grad():
        spread = F.normalize(model.online(x), dim=1).std(0).mean().item()
    print(f"epoch {epoch}  loss {total:.4f}  spread of the features {spread:.3f}  linear probe {probe(model, x, digits.target):.3f}")
