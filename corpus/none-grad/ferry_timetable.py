"""The forward of every gated stage is written from a template and executed; the template takes .data of the gate, so
all gate layers are cut off from the loss. The user's line is the call of the generated function (the text to change
is in STAGE).

Report: a kind of mistake, no single report: .data in a forward silently removes gradients; here in a forward that is
generated from text
"""
import textwrap

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "HERE"),
    "plain": "valid mse 0.963 of a variance of 0.984 as it is, 0.104 without .data; gate weights do not move",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(61)
HEAD = """
def run(self, x):
    h = self.inp(x)
"""
STAGE = """
    g{i} = torch.sigmoid(self.gate[{i}](h)).data
    h = h * (1 - g{i}) + g{i} * torch.tanh(self.value[{i}](h))
"""
TAIL = """
    return self.out(h).squeeze(-1)
"""


def write_forward(depth):
    parts = [HEAD.rstrip("\n")]
    parts += [STAGE.strip("\n").format(i=i) for i in range(depth)]
    parts.append(TAIL.strip("\n"))
    source = "\n".join(parts)
    space = {"torch": torch}
    exec(compile(textwrap.dedent(source), "<stages>", "exec"), space)
    return space["run"]


class DelayModel(nn.Module):
    """Delay of a ferry from tide, wind, load and timetable slot; which inputs matter depends on others."""

    def __init__(self, depth=4, width=24):
        super().__init__()
        self.inp = nn.Linear(8, width)
        self.gate = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.value = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 1)
        for gate in self.gate:
            nn.init.normal_(gate.weight, std=0.02)
            nn.init.constant_(gate.bias, -5.0)
        self.run = write_forward(depth)

    def forward(self, x):
        return self.run(self, x)  # HERE


def sailings(n, generator):
    x = torch.randn(n, 8, generator=generator)
    y = torch.where(x[:, 0] > 0, torch.sin(2 * x[:, 1]), x[:, 2] * x[:, 3])
    y = y + torch.relu(x[:, 4]) * torch.cos(2 * x[:, 5]) + 0.05 * torch.randn(n, generator=generator)
    return x, y


def main():
    g = torch.Generator().manual_seed(0)
    xv, yv = sailings(1500, g)
    model = DelayModel()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 800)
    for step in range(1, 801):
        x, y = sailings(128, g)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 100 == 0:
            with torch.no_grad():
                valid = F.mse_loss(model(xv), yv).item()
            print(f"step {step}  train {loss.item():.3f}  valid {valid:.3f}  (variance {yv.var():.3f})")


if __name__ == "__main__":
    main()
