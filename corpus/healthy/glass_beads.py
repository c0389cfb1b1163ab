"""Healthy: many in-place writes, all of them legal."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(27)
SIDE = 8


class BeadNet(nn.Module):
    def __init__(self, width=48, colours=5):
        super().__init__()
        self.inp = nn.Linear(SIDE * 3, width)
        self.shift = nn.Parameter(torch.zeros(width))
        self.cell = nn.Linear(2 * width, 2 * width)
        self.out = nn.Linear(width, colours)

    def forward(self, x):
        b, t, _ = x.shape
        h = self.inp(x)
        h += self.shift
        h.relu_()
        state = h.new_zeros(b, h.shape[-1])
        trace = h.new_zeros(b, t, h.shape[-1])
        for i in range(t):
            both = self.cell(torch.cat([h[:, i], state], dim=1))
            value, gate = both.chunk(2, dim=1)
            state = state + gate.sigmoid() * (value.tanh() - state)
            trace[:, i] = state
        trace[:, 0] *= 0.5
        return self.out(trace.mean(1))


@torch.inference_mode()
def reference_rows(n, generator):
    prototypes = torch.randn(5, SIDE * 3, generator=generator)
    noise = torch.randn(n, SIDE, SIDE * 3, generator=generator)
    return prototypes, noise


def strings(prototypes, n, generator):
    y = torch.randint(0, 5, (n,), generator=generator)
    x = 0.5 * prototypes[y].unsqueeze(1).repeat(1, SIDE, 1)
    x.add_(torch.randn(x.shape, generator=generator))
    swap = torch.rand(n, generator=generator) < 0.5
    x[swap] = x[swap].flip(1)
    return x, y


def main():
    g = torch.Generator().manual_seed(5)
    prototypes, noise = reference_rows(64, g)
    prototypes, noise = prototypes.clone(), noise.clone()
    model = BeadNet()
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step in range(300):
        x, y = strings(prototypes, 32, g)
        x[:, 2] += 0.3 * noise[:32, 2]
        logits = model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.grad.mul_(min(1.0, 2.0 / (float(p.grad.norm()) + 1e-6)))
        opt.step()
        with torch.no_grad():
            model.shift.clamp_(-1.0, 1.0)
        if step % 60 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}")
    with torch.no_grad():
        x, y = strings(prototypes, 600, g)
        print(f"accuracy {(model(x).argmax(1) == y).float().mean():.3f}")


if __name__ == "__main__":
    main()
