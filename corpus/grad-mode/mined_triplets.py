"""Metric learning: random triplets first, later the generator looks for hard negatives with the model itself.

Source: https://github.com/pytorch/pytorch/pull/49017 (a generator that is paused inside no_grad) and
        https://github.com/pytorch/pytorch/issues/31497
Plain PyTorch 2.13: RuntimeError "element 0 of tensors does not require grad" at the first mined batch.
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "d", "kind": "grad-mode-disabled", "cut_marker": "CUT", "step": 340,
    "plain": {"outcome": "raises", "match": "does not require grad"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU())
        self.project = nn.Linear(16, 8)

    def forward(self, images):
        return F.normalize(self.project(self.conv(images).mean((2, 3))), dim=1)


class Gallery:
    def __init__(self, people=20, each=12):
        generator = torch.Generator().manual_seed(4)
        faces = torch.randn(people, 1, 1, 14, 14, generator=generator)
        noise = torch.randn(people, each, 1, 14, 14, generator=generator)
        self.images = (faces + 0.7 * noise).flatten(0, 1)
        self.person = torch.arange(people).repeat_interleave(each)

    def partner(self, rows, same):
        match = self.person[rows][:, None] == self.person[None]
        allowed = match if same else ~match
        allowed[torch.arange(len(rows)), rows] = False
        return torch.multinomial(allowed.float(), 1).squeeze(1)


def hardest(model, gallery, anchors, pool=96):
    candidates = torch.randperm(len(gallery.images))[:pool]
    distance = torch.cdist(model(gallery.images[anchors]), model(gallery.images[candidates]))
    same = gallery.person[anchors][:, None] == gallery.person[candidates][None]
    return candidates[distance.masked_fill(same, 9.0).argmin(1)]


def triplets(model, gallery, batches, mine_after, size=24):
    for index in range(batches):
        anchors = torch.randint(len(gallery.images), (size,))
        positives = gallery.partner(anchors, same=True)
        if index < mine_after:
            negatives = gallery.partner(anchors, same=False)
            yield gallery.images[anchors], gallery.images[positives], gallery.images[negatives]
        else:
            model.eval()
            with torch.no_grad():  # CUT
                negatives = hardest(model, gallery, anchors)
                model.train()
                yield gallery.images[anchors], gallery.images[positives], gallery.images[negatives]


def main():
    torch.manual_seed(0)
    model, gallery = Embedder(), Gallery()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step, (anchor, positive, negative) in enumerate(triplets(model, gallery, 600, 340)):
        a, p, n = model(torch.cat([anchor, positive, negative])).chunk(3)
        loss = F.softplus(4 * ((a - p).square().sum(1) - (a - n).square().sum(1))).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
