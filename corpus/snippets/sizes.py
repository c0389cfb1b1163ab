"""Gradients that are zero, fade or blow up."""

from __future__ import annotations

#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "forgotten over time": (
        """
        cell, out = nn.RNNCell(2, 16), nn.Linear(16, 1)
        nn.init.orthogonal_(cell.weight_hh, gain=0.4)
        for _ in range(2):
            h = torch.zeros(4, 16)
            for x in torch.rand(40, 4, 2):
                h = cell(x, h)  # HERE
            out(h).square().mean().backward()
        """,
        "vanishing-gradient",
        "HERE",
        None,
    ),
    "a model that is gone before its backward": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.randn(16, 16))
            def forward(self, h):
                for _ in range(20):
                    h = F.relu(h @ self.w)  # HERE
                return h
        Net()(torch.randn(4, 16)).mean().backward()
        """,
        *("exploding-gradient", "HERE", ""),
    ),
    "rounded": (
        """
        net = nn.Linear(3, 2)
        y = torch.round(net(torch.randn(4, 3)))  # HERE
        (y - 1).square().mean().backward()
        """,
        *("zero-grad", "HERE", ""),
    ),
    "every relu is dead": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)
                nn.init.constant_(self.a.bias, -100.0)
            def forward(self, x):
                return self.b(F.relu(self.a(x)))  # HERE
        net = Net()
        for _ in range(4):
            net.zero_grad(); net(torch.randn(4, 3)).sum().backward()
        """,
        *("zero-grad", "HERE", ""),
    ),
    "deep tanh with small weights": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(20))
                for layer in self.layers:
                    nn.init.normal_(layer.weight, std=0.05)
            def forward(self, x):
                for layer in self.layers:
                    x = torch.tanh(layer(x))  # HERE
                return x
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(8, 16)).square().mean().backward(); opt.step()
        """,
        *("vanishing-gradient", "HERE", "layers"),
    ),
    "deep linear with large weights": (
        """
        net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(14)))
        for layer in net:
            nn.init.normal_(layer.weight, std=1.0)
        net(torch.randn(8, 16)).mean().backward()  # HERE
        """,
        *("exploding-gradient", "HERE", ""),
    ),
    "recurrent weight too large": (
        """
        w = nn.Linear(8, 8, bias=False)
        nn.init.normal_(w.weight, std=1.0)
        h = torch.randn(2, 8)
        for _ in range(40):
            h = w(h)  # HERE
        h.mean().backward()
        """,
        *("exploding-gradient", "HERE", ""),
    ),
}
