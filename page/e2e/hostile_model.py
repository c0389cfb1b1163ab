"""A run whose names try to inject markup; `reports.py` runs a copy of this file with such a name itself."""

import torch
from torch import nn

NAMES = [
    "<script>alert(1)</script>",
    "\"&'",
    "\U0001f92f\N{COMBINING ACUTE ACCENT}",
    "```\n# not a heading",
    "x" * 300,
    "<img src=x onerror=alert(2)>",
    "\N{RIGHT-TO-LEFT OVERRIDE}abc",
]


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        for name in NAMES:
            self.add_module(name, nn.Linear(4, 4))
        self.register_parameter("<b>bold</b>&amp;", nn.Parameter(torch.ones(4)))
        self.add_module("</script><script>alert(3)</script>", nn.Linear(4, 4))

    def forward(self, x, bad):
        for layer in list(self.children())[:-1]:
            x = torch.tanh(layer(x))
        return (x * (x - x + bad)).log().mean()  # </script><script>alert(4)</script> ``` <!-- {{ }}


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Odd()
    optimizer = torch.optim.SGD([*model.parameters()], lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4) + 0.1 * torch.randn(3, 4), 0.0 if step == 4 else 1.0).abs()
        loss.backward()
        optimizer.step()
