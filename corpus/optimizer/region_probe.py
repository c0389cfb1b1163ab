"""Trains a linear probe for a new region on a frozen backbone; the backbone still changes, and the head that was already in use on it breaks.

Report: https://github.com/kdexd/virtex/issues/16 (the parameters of the backbone are frozen, but .train() makes its BatchNorm layers accumulate running statistics of the new data)

Effect: the running means of the backbone move and the accuracy of the old head on the old region drops strongly.
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

EXPECT = {
    "framework": "plain", "kind": "frozen-buffer-changes", "line": ("cause", "CAUSE"),
    "what": "model.train() also switches the frozen backbone to train mode, so its BatchNorm running statistics are overwritten by the new data; keep model.backbone in eval mode.",
    "set": "eighteenth", "written": "2026-11-27",
}


class Probe(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(256, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def make_backbone(images):
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(16, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    net.train()
    with torch.no_grad():
        for _ in range(40):
            net(images[torch.randint(0, len(images), (128,))])
    return net.eval()


def old_head_accuracy(backbone, clf, images, labels):
    was_training = backbone.training
    backbone.eval()
    with torch.no_grad():
        acc = clf.score(backbone(images).numpy(), labels.numpy())
    backbone.train(was_training)
    return acc


def main():
    torch.manual_seed(0)
    d = load_digits()
    images = torch.tensor(d.images / 16.0, dtype=torch.float32)[:, None]
    labels = torch.tensor(d.target)
    backbone = make_backbone(images[:900])
    with torch.no_grad():
        clf = LogisticRegression(max_iter=400).fit(backbone(images[:900]).numpy(), labels[:900].numpy())
    region = (1.0 - images[900:]) * 1.5 + 0.3
    region_labels = (labels[900:] >= 5).long()

    model = Probe(backbone, 2)
    for p in model.backbone.parameters():
        p.requires_grad = False
    opt = torch.optim.SGD(model.head.parameters(), lr=0.005, momentum=0.9)
    print(f"old head before: {old_head_accuracy(backbone, clf, images[:900], labels[:900]):.3f}")
    model.train()  # CAUSE
    for step in range(200):
        idx = torch.randint(0, 700, (48,))
        loss = nn.functional.cross_entropy(model(region[idx]), region_labels[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} loss {loss.item():.3f} "
                  f"old head {old_head_accuracy(backbone, clf, images[:900], labels[:900]):.3f}")
    model.eval()
    with torch.no_grad():
        acc = (model(region[700:]).argmax(1) == region_labels[700:]).float().mean().item()
    print(f"new region accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
