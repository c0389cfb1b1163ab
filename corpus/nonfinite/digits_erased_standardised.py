"""Digits with random erasing, every image standardised on its own: once the rectangle hides the whole figure, there is no spread to divide by."""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 595,
    "set": "late", "written": "2026-11-22",
}


def random_erasing(images, probability=0.05):
    if torch.rand(()) > probability:
        return images
    images = images.clone()
    row = int(torch.randint(len(images), ()))
    height, width = torch.randint(1, 9, (2,)).tolist()
    top, left = int(torch.randint(9 - height, ())), int(torch.randint(9 - width, ()))
    images[row, top : top + height, left : left + width] = 0.0
    return images


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(48, 10)

    def forward(self, images):
        x = images.flatten(1)
        x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)  # CULPRIT
        return self.head(self.body(x))


torch.manual_seed(4)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.images).float() / 16, torch.tensor(digits.target))
train = DataLoader(data, batch_size=16, shuffle=True, drop_last=True)
net = Net()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for epoch in range(6):
    correct = 0
    for images, labels in train:
        logits = net(random_erasing(images))
        loss = nn.functional.cross_entropy(logits, labels, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct += (logits.argmax(1) == labels).sum().item()
    print(f"epoch {epoch} loss {loss.item():.3f} accuracy {correct / len(data):.3f}")
