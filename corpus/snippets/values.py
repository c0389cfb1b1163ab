"""Values and gradients that become Inf or NaN."""

from __future__ import annotations

#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "a compiled model that gives Inf": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.scale = nn.Linear(4, 4), nn.Parameter(torch.zeros(()))
            def forward(self, x):
                return (self.linear(x).abs() * self.scale).log()  # HERE
        net = torch.compile(Net(), backend="aot_eager")
        out = net(torch.randn(6, 4))
        out.mean().backward()
        """,
        "nonfinite-forward",
        "HERE",
        None,
    ),
    "a division outside the graph": (
        """
        class Scale(nn.Module):
            def forward(self, x):
                return (x - x.mean(0)) / x.std(0)  # HERE
        net = nn.Sequential(Scale(), nn.Linear(3, 1))
        x = torch.randn(5, 3)
        x[:, 1] = 2.0
        net(x).square().mean().backward()
        """,
        "nonfinite-forward",
        "HERE",
        "0",
    ),
    "log of zero": (
        """
        net = nn.Linear(4, 3)
        p = F.relu(net(torch.randn(5, 4)))
        loss = -(p.log()).mean()  # HERE
        loss.backward()
        """,
        *("nonfinite-forward", "HERE", ""),
    ),
    "sqrt at zero": (
        """
        class Distance(nn.Module):
            def forward(self, a, b):
                return (a - b).square().sum(1).sqrt()  # HERE
        net = nn.Sequential(nn.Linear(4, 3))
        distance = Distance()
        x = torch.randn(5, 4)
        distance(net(x), net(x)).mean().backward()
        """,
        *("nonfinite-backward", "HERE", None),
    ),
    "norm at zero": (
        """
        w = torch.zeros(3, requires_grad=True)
        (w * torch.ones(3)).square().sum().pow(0.5).backward()  # HERE
        """,
        *("nonfinite-backward", "HERE", ""),
    ),
    "overflow in half precision": (
        """
        net = nn.Linear(4, 4).half()
        h = net(torch.full((2, 4), 300.0, dtype=torch.half))
        h = h * 60000 * 60000  # HERE
        h.float().sum().backward()
        """,
        *("nonfinite-forward", "HERE", ""),
    ),
    "division inside a mask": (
        """
        a = torch.ones(4, requires_grad=True)
        b = torch.tensor([1.0, 0.0, 2.0, 0.0])
        q = (a * b) / (b * a)  # HERE
        torch.where(b > 0, q, torch.zeros(4)).sum().backward()
        """,
        *("nonfinite-backward", "HERE", ""),
    ),
    "after many good steps": (
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(30):
            x = torch.randn(6, 4)
            scale = torch.tensor(0.0 if step == 25 else 1.0)
            out = net(x)
            loss = (out / scale).square().mean()  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("nonfinite-forward", "HERE", ""),
    ),
    "gradient after many good steps": (
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(30):
            out = net(torch.randn(6, 4))
            if step == 25:
                out = out * 0
            loss = (out.square().sum() + 0.0).sqrt()  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("nonfinite-backward", "HERE", ""),
    ),
}
