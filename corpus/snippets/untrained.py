"""Parameters that the model or the optimizer does not know of."""

from __future__ import annotations

#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "a head that comes after the optimizer": (
        """
        net = nn.ModuleDict({"a": nn.Linear(3, 2)})
        opt = torch.optim.SGD(net.parameters(), lr=0.1)  # HERE
        net["b"] = nn.Linear(3, 2)
        for _ in range(3):
            x = torch.randn(4, 3)
            opt.zero_grad(); (net["a"](x) + net["b"](x)).square().mean().backward(); opt.step()
        """,
        "parameter-not-in-optimizer",
        "HERE",
        None,
    ),
    "groups by name that miss a layer": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.neck, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)
            def forward(self, x):
                return self.head(self.neck(self.body(x)))
        net = Net()
        groups = [{"params": [p for n, p in net.named_parameters() if part in n]} for part in ("body", "head")]
        opt = torch.optim.SGD(groups, lr=0.01)  # HERE
        for _ in range(3):
            opt.zero_grad(); net(torch.randn(4, 3)).square().mean().backward(); opt.step()
        """,
        "parameter-not-in-optimizer",
        "HERE",
        None,
    ),
    "modules in a dict": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.heads = {"a": nn.Linear(3, 2), "b": nn.Linear(3, 2)}  # HERE
                self.body = nn.Linear(3, 3)
            def forward(self, x):
                h = self.body(x)
                return sum(head(h) for head in self.heads.values())
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("unregistered-parameter", "HERE", ""),
    ),
    "a tensor that is not a parameter": (
        """
        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.ones(3, requires_grad=True)  # HERE
            def forward(self, x):
                return x * self.scale
        net = nn.Sequential(nn.Linear(3, 3), Scale())
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("unregistered-parameter", "HERE", "1"),
    ),
    "a layer made in the forward": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(3, 3)
            def forward(self, x):
                h = self.body(x)
                return nn.Linear(3, 1)(h)  # HERE
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("unregistered-parameter", "HERE", ""),
    ),
    "head replaced after a few steps": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)  # HERE
        for step in range(6):
            if step == 3:
                net[1] = nn.Linear(3, 4)
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("parameter-not-in-optimizer", "HERE", None),
    ),
    "one generator twice in an optimizer": (
        """
        there, back = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        both = [*there.parameters(), *there.parameters()]
        opt = torch.optim.SGD(both, lr=0.1)  # HERE
        for step in range(6):
            x = torch.randn(4, 3)
            opt.zero_grad(); (back(there(x)) - x).square().mean().backward(); opt.step()
        """,
        *("parameter-not-in-optimizer", "HERE", None),
    ),
    "weights that are no parameters any more": (
        """
        from torch.nn.utils import parametrizations, parametrize
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        parametrizations.weight_norm(net[0])
        opt = torch.optim.SGD(net.parameters(), lr=0.1)  # HERE
        for step in range(30):
            if step == 10:
                with torch.no_grad():  # where what is put back is no parameter
                    parametrize.remove_parametrizations(net[0], "weight")
                    net(torch.randn(2, 3))
                    parametrizations.weight_norm(net[0])
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("parameter-not-in-optimizer", "HERE", None),
    ),
    "head replaced by a method": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 2)
            def reset(self, classes):
                self.head = nn.Linear(3, classes)
            def forward(self, x):
                return self.head(self.body(x))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)  # HERE
        net.reset(4)
        for step in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("parameter-not-in-optimizer", "HERE", None),
    ),
}
