"""A callback registers its logging hook anew at the start of each epoch: every epoch logs each activation once more."""

import torch
from torch import nn

EXPECT = {"kind": "hooks-pile-up", "line": ("hook", "HOOK")}


class ActivationLog:
    def __init__(self):
        self.means = []

    def note(self, module, inputs, output):
        self.means.append(output.mean().item())

    def epoch_begins(self, model):
        for layer in model:
            layer.register_forward_hook(self.note)  # HOOK


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    log = ActivationLog()
    for _ in range(8):
        log.epoch_begins(model)
        for _ in range(3):
            x = torch.randn(32, 6)
            loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(len(log.means))


if __name__ == "__main__":
    main()
