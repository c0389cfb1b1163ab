"""Tensors that are written while backward needs them."""

from __future__ import annotations

#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "a picture normalised in place through numpy": (
        """
        def look(t):
            picture = t.detach().numpy()
            picture -= picture.min()  # HERE
            return picture.copy()
        net = nn.Linear(4, 3)
        out = torch.tanh(net(torch.randn(5, 4)))
        look(out)
        out.square().sum().backward()
        """,
        "silent-mutation",
        "HERE",
        "",
    ),
    "a buffer of a loader that is filled again": (
        """
        import numpy as np
        buffer = np.zeros((5, 4), dtype=np.float32)
        def load(k):
            buffer[:] = k + np.arange(20).reshape(5, 4)  # HERE
            return torch.from_numpy(buffer)
        net = nn.Linear(4, 3)
        losses = [net(load(k)).square().mean() for k in range(2)]
        sum(losses).backward()
        """,
        "silent-mutation",
        "HERE",
        "",
    ),
    "added in place after exp": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x):
                y = self.fc(x).exp()
                y += 1  # HERE
                return y
        raises(lambda: Net()(torch.ones(2, 3)).sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "written through a view": (
        """
        a = torch.randn(4, requires_grad=True)
        h = torch.sigmoid(a)
        part = h[1:3]
        part.mul_(2)  # HERE
        raises(lambda: h.sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "written by an out argument": (
        """
        a = torch.randn(4, requires_grad=True)
        scratch = torch.zeros(4)
        y = a * scratch
        torch.add(torch.ones(4), 1, out=scratch)  # HERE
        raises(lambda: y.sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "optimizer step between forward and backward": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        opt = torch.optim.Adam(net.parameters())
        for step in range(6):
            a, b = net(torch.randn(2, 3)).sum(), net(torch.randn(2, 3)).square().sum()
            opt.zero_grad()
            a.backward()
            opt.step()  # HERE
            if raises(b.backward):
                break
        """,
        *("inplace", "HERE", "2"),
    ),
    "in-place module": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.act = nn.Linear(3, 3), nn.ReLU(inplace=True)
            def forward(self, x):
                h = torch.tanh(self.fc(x))
                return self.act(h)  # HERE
        raises(lambda: Net()(torch.ones(2, 3)).sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "a buffer changed by a helper": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.register_buffer("scale", torch.ones(3))
            def forward(self, x):
                y = self.fc(x) * self.scale
                update(self.scale)
                return y
        def update(t):
            with torch.no_grad():
                t.lerp_(torch.zeros(3), 0.1)  # HERE
        net = Net()
        raises(lambda: net(torch.ones(2, 3)).sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "written through data": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(6):
            h = net[1](net[0](torch.randn(2, 3)))
            loss = net[2](h).sum()
            h.data.clamp_(max=0.5)  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("silent-mutation", "HERE", None),
    ),
    "a row of the state set in place": (
        """
        cell, h, c = nn.LSTMCell(4, 4), torch.zeros(2, 4), torch.zeros(2, 4)
        loss = 0
        for t in range(3):
            h, c = cell(torch.randn(2, 4), (h, c))
            loss = loss + h.square().sum()
            h[0] = 0  # HERE
        raises(lambda: loss.backward())
        """,
        *("inplace", "HERE", ""),
    ),
}
