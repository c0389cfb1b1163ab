"""Watch_activity() registers a forward hook on every rectifier in each step and none is removed, so the list of
activities grows by one copy per step and the sparsity penalty is multiplied by the step number until it silences the
network.

Report: github.com/huggingface/peft pull request 2761 (forward hooks accumulate, one registered per forward step and
not removed)
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "hooks-pile-up",
    "line": ("hook", "HERE"),
    "plain": "accuracy falls from 0.822 at step 160 to 0.594 at step 240 while loss rises; 0.946 with the hooks registered once; as it is also slower (21 s against 9 s, measured with other load on the machine)",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(21)
SPECIES = 6
SAMPLES = 96
activity = []


def recordings(n, generator):
    """Wing beats: a base frequency and a harmonic per insect species, plus noise."""
    label = torch.randint(0, SPECIES, (n,), generator=generator)
    t = torch.linspace(0, 1, SAMPLES)
    base = 4.0 + 2.0 * label.float()
    base = base * (1 + 0.05 * torch.randn(n, generator=generator))
    phase = 2 * math.pi * torch.rand(n, 1, generator=generator)
    wave = torch.sin(2 * math.pi * base[:, None] * t + phase)
    wave = wave + 0.5 * torch.sin(4 * math.pi * base[:, None] * t + 2 * phase)
    wave = wave + 0.5 * torch.randn(n, SAMPLES, generator=generator)
    return wave.unsqueeze(1), label


class WingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 16, 9, padding=4),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 24, 7, padding=3),
            nn.ReLU(),
            nn.MaxPool1d(2),
        )
        self.head = nn.Linear(24, SPECIES)

    def forward(self, x):
        h = self.features(x)
        return self.head(h.amax(-1))


def keep_activity(module, args, output):
    activity.append(output.abs().mean())


def watch_activity(model):
    activity.clear()
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(keep_activity)  # HERE


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    g = torch.Generator().manual_seed(4)
    xv, yv = recordings(500, g)
    model = WingNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(240):
        x, y = recordings(32, g)
        watch_activity(model)
        loss = F.cross_entropy(model(x), y)
        loss = loss + 0.2 * torch.stack(activity).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 39:
            print(f"step {step + 1:3d}  loss {loss.item():.3f}  valid acc {accuracy(model, xv, yv):.3f}")
    print(f"final accuracy {accuracy(model, xv, yv):.3f}")


if __name__ == "__main__":
    main()
