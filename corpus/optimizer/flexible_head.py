"""A classifier that finds out its input size by itself: the projection is built on the first forward pass. Training goes
down slowly and the model stays worse than its twin with fixed sizes, since the optimizer was made before the first batch
and has never heard of the projection; it keeps its random start values."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "layer made after the optimizer",
    "kind": "parameter-not-in-optimizer",
    "line": ["defined", "cause"],
    "what": "The projection layer is created lazily in the first forward, after the optimizer took model.parameters(), so projection.weight and projection.bias get gradients but are never updated.",
    "symptom": "no error; loss falls slowly, the projection keeps its initial values",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(11)
torch.set_num_threads(1)


class FlexibleClassifier(nn.Module):
    """Convolution, flatten, projection of whatever comes out, classifier."""

    def __init__(self, n_classes, hidden=4):
        super().__init__()
        self.hidden = hidden
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU())
        self.projection = None
        self.classifier = nn.Linear(hidden, n_classes)

    def forward(self, x):
        h = self.features(x).flatten(1)
        if self.projection is None:
            self.projection = nn.Linear(h.shape[1], self.hidden)  # <-- cause
        return self.classifier(torch.tanh(self.projection(h)))


def loaders(batch_size):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    data = torch.utils.data.TensorDataset(images, torch.tensor(digits.target))
    train, test = torch.utils.data.random_split(data, [1397, 400], torch.Generator().manual_seed(0))
    make = torch.utils.data.DataLoader
    return make(train, batch_size=batch_size, shuffle=True), make(test, batch_size=400)


def evaluate(model, loader):
    model.eval()
    hits = n = 0
    with torch.no_grad():
        for xb, yb in loader:
            hits += (model(xb).argmax(1) == yb).sum().item()
            n += len(yb)
    model.train()
    return hits / n


train_loader, test_loader = loaders(64)
model = FlexibleClassifier(10)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
print("parameters in the optimizer:", sum(len(g["params"]) for g in optimizer.param_groups))

for epoch in range(6):
    total = 0.0
    for xb, yb in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(xb), yb)
        loss.backward()
        optimizer.step()
        total += loss.item() / len(train_loader)
    print(f"epoch {epoch}  loss {total:.4f}  test accuracy {evaluate(model, test_loader):.3f}")
