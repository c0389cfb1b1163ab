"""Healthy: a tap is put on and removed in each step; hooks on activations, one mask hook."""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(8)


class RowScanner(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 12, 3, padding=1)
        self.mid = nn.Conv2d(12, 24, 3, padding=1, stride=2)
        self.head = nn.Linear(24 * 16, 10)

    def forward(self, x):
        h = F.relu(self.stem(x))
        h = F.relu(self.mid(h))
        return self.head(h.flatten(1))


class Tap:
    def __init__(self, module):
        self.value = None
        self.handle = module.register_forward_hook(self._keep)

    def _keep(self, module, args, output):
        self.value = output
        output.register_hook(lambda g: g.clamp(-0.05, 0.05))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.handle.remove()


def sparse_stem(model):
    keep = torch.ones_like(model.stem.weight)
    keep[:, :, 0, 0] = 0
    keep[:, :, 2, 2] = 0
    with torch.no_grad():
        model.stem.weight.mul_(keep)
    model.stem.weight.register_hook(lambda g: g * keep)
    return keep


def main():
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x))
    train, test = order[:1400], order[1400:]
    model = RowScanner()
    keep = sparse_stem(model)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(350):
        rows = train[torch.randint(0, len(train), (48,))]
        with Tap(model.mid) as tap:
            logits = model(x[rows])
        smooth = (tap.value[..., 1:] - tap.value[..., :-1]).pow(2).mean()
        loss = F.cross_entropy(logits, y[rows]) + 1e-2 * smooth
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 70 == 0:
            hooks = len(model.mid._forward_hooks)
            print(f"step {step:3d}  loss {loss.item():.4f}  open taps {hooks}")
    with torch.no_grad():
        acc = (model(x[test]).argmax(1) == y[test]).float().mean()
    print(f"test accuracy {acc:.3f}  zeroed taps {float(model.stem.weight.detach()[keep == 0].abs().max()):.1e}")


if __name__ == "__main__":
    main()
