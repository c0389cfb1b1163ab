"""Attribution tool registers a full backward hook; the script calls model.encoder.forward(x)."""

import torch
from torch import nn

EXPECT = {"kind": "hook-never-fires", "line": ("hook", "HOOK")}


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(nn.Linear(6, 4), nn.ReLU()), nn.Linear(4, 6)

    def forward(self, x):
        code = self.encoder.forward(x)
        return self.decoder(code)


def watch(module):
    grads = []
    module.register_full_backward_hook(lambda m, gi, go: grads.append(go[0].norm().item()))  # HOOK
    return grads


def main():
    torch.manual_seed(0)
    net = Autoencoder()
    grads = watch(net.encoder)
    opt = torch.optim.Adam(net.parameters())
    for _ in range(3):
        x = torch.randn(8, 6)
        loss = (net(x) - x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": grads == []})


if __name__ == "__main__":
    main()
