"""Pretrain on rotations, then fine-tune with a head warm-up and gradual unfreezing.

Right because: in stage 0 the two lower blocks have requires_grad False and are in no param
group; the top block *is* in a group with lr 0 (its gradients flow and are watched, but the
head warms up alone); the schedule thaws each of them and adds it to the optimizer at that
time with a discriminative rate.  BatchNorm of frozen blocks stays in eval mode.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.blocks = nn.ModuleList([block(1, 12), block(12, 24), block(24, 24)])
        self.head = nn.Linear(24 * 4, classes)
        self.frozen = set()

    def forward(self, x):
        x = F.max_pool2d(self.blocks[0](x), 2)
        x = F.max_pool2d(self.blocks[1](x), 2)
        return self.head(self.blocks[2](x).flatten(1))

    def freeze(self, i):
        self.frozen.add(i)
        self.blocks[i].requires_grad_(False)
        self.blocks[i].eval()

    def thaw(self, i):
        self.frozen.discard(i)
        self.blocks[i].requires_grad_(True)
        self.blocks[i].train(self.training)

    def train(self, mode=True):
        super().train(mode)
        for i in self.frozen:
            self.blocks[i].eval()
        return self


def rotation_batch(img, gen):
    k = torch.randint(0, 4, (len(img),), generator=gen)
    out = torch.stack([torch.rot90(im, r, (1, 2)) for im, r in zip(img, k.tolist())])
    return out, k


def pretrain(net, img, gen, steps=150):
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(steps):
        x, k = rotation_batch(img[torch.randint(0, len(img), (48,), generator=gen)], gen)
        loss = F.cross_entropy(net(x), k)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 49:
            print(f"rotation step {step} loss {loss.item():.3f}")


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    d = load_digits()
    img, lab = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(d.target)
    net = Net(4)
    pretrain(net, img[:1400], gen)

    net.head = nn.Linear(24 * 4, 10)
    net.freeze(0)
    net.freeze(1)
    opt = torch.optim.Adam([
        {"params": net.head.parameters(), "lr": 3e-3, "name": "head"},
        {"params": net.blocks[2].parameters(), "lr": 0.0, "name": "block2"},
    ])
    schedule = {60: ("rate", 2, 1e-3), 140: ("thaw", 1, 5e-4), 240: ("thaw", 0, 2e-4)}
    for step in range(400):
        if step in schedule:
            what, i, lr = schedule[step]
            if what == "rate":
                next(g for g in opt.param_groups if g["name"] == f"block{i}")["lr"] = lr
            else:
                net.thaw(i)
                opt.add_param_group({"params": net.blocks[i].parameters(), "lr": lr, "name": f"block{i}"})
            print(f"step {step}: block {i} joins with lr {lr}")
        net.train()
        idx = torch.randint(0, 1400, (48,), generator=gen)
        loss = F.cross_entropy(net(img[idx]), lab[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 80 == 79:
            net.eval()
            with torch.no_grad():
                acc = (net(img[1400:]).argmax(1) == lab[1400:]).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} test acc {acc:.3f}")


if __name__ == "__main__":
    main()
