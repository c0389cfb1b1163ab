"""What gets no gradient: where the path is cut, or gradient mode is off."""

from __future__ import annotations

#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "a penalty on a gradient without a graph": (
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        x = torch.randn(8, 4, requires_grad=True)
        grad, = torch.autograd.grad(net(x).sum(), x)  # HERE
        raises(grad.norm().backward)
        """,
        "none-grad",
        "HERE",
        None,
    ),
    "a loss of indices, made a leaf by force": (
        """
        net = nn.Linear(6, 4)
        predicted = net(torch.randn(8, 6)).max(1)[1]  # HERE
        loss = (predicted.float() - 1).square().mean()
        loss.requires_grad = True
        loss.backward()
        """,
        "none-grad",
        "HERE",
        "",
    ),
    "a loss that was made without gradient mode, and a leaf by force": (
        """
        net = nn.Linear(6, 4)
        with torch.no_grad():  # HERE
            loss = net(torch.randn(8, 6)).square().mean()
        loss.requires_grad_()
        loss.backward()
        """,
        "grad-mode-disabled",
        "HERE",
        None,
    ),
    "the indices of a sort go on": (
        """
        net, head = nn.Linear(6, 4), nn.Linear(4, 1)
        _, order = net(torch.randn(8, 6)).sort(1)  # HERE
        head(order.float()).sum().backward()
        """,
        "none-grad",
        "HERE",
        "",
    ),
    "an expert that the data never choose": (
        """
        gate, experts = nn.Linear(3, 4), nn.ModuleList(nn.Linear(3, 2) for _ in range(4))
        class Mix(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.experts = gate, experts  # HERE
            def forward(self, x, k):
                weight = self.gate(x).softmax(-1)
                return sum(weight[:, i : i + 1] * self.experts[i](x) for i in k)
        mix = Mix()
        for k in ([0, 1], [0, 2], [0, 2]):
            mix(torch.randn(5, 3), k).square().mean().backward()
        """,
        "none-grad",
        None,
        "experts.3",
    ),
    "features from inference mode": (
        """
        body, head = nn.Linear(4, 4), nn.Linear(4, 2)
        with torch.inference_mode():  # HERE
            features = body(torch.randn(5, 4))
        assert raises(lambda: head(features))
        """,
        "grad-mode-disabled",
        "HERE",
        "head",
    ),
    "gradient mode left off": (
        """
        net = nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def evaluate():
            torch.set_grad_enabled(False)  # HERE
            return net(torch.randn(2, 3)).mean().item()
        for _ in range(3):
            opt.zero_grad()
            if raises(lambda: net(torch.randn(2, 3)).sum().backward()):
                break
            opt.step()
            evaluate()
        torch.set_grad_enabled(True)
        """,
        *("grad-mode-disabled", "HERE", ""),
    ),
    "gradient of a tensor that is no leaf": (
        """
        w = torch.randn(3, requires_grad=True)
        w = w * 2  # HERE
        w.sum().backward()
        print(w.grad)
        """,
        *("nonleaf-grad", "HERE", ""),
    ),
    "module never called": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
                self.extra = nn.Linear(3, 3)  # HERE
            def forward(self, x):
                return self.b(self.a(x))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("none-grad", "HERE", "extra"),
    ),
    "output not used": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 3)
                self.aux = nn.Linear(3, 2)  # HERE
            def forward(self, x):
                h = self.a(x)
                return h, self.aux(h)
        net = Net()
        out, aux = net(torch.randn(2, 3))
        out.sum().backward()
        """,
        *("none-grad", "HERE", "aux"),
    ),
    "detached on the way": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.head = nn.Linear(3, 3), nn.Linear(3, 1)
            def forward(self, x):
                h = self.encoder(x).detach()  # HERE
                return self.head(h)
        net = Net()
        opt = torch.optim.Adam(net.parameters())
        for _ in range(5):
            loss = net(torch.randn(2, 3)).mean()
            opt.zero_grad(); loss.backward(); opt.step()
            print(loss.item())
        """,
        *("none-grad", "HERE", ""),
    ),
    "sampled without a path": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.d = nn.Linear(4, 4), nn.Linear(4, 1)
            def forward(self, x):
                dist = torch.distributions.Normal(self.e(x), 1.0)
                z = dist.sample()  # HERE
                return self.d(z)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            loss = net(torch.randn(2, 4)).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("none-grad", "HERE", ""),
    ),
    "an encoder that runs without gradients": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.d = nn.Linear(4, 4), nn.Linear(4, 1)
            @torch.no_grad()  # HERE
            def encode(self, x):
                return torch.tanh(self.e(x))
            def forward(self, x):
                return self.d(self.encode(x))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            loss = net(torch.randn(2, 4)).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("none-grad", "HERE", "e"),
    ),
    "made anew from its values": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.d = nn.Linear(4, 4), nn.Linear(4, 1)
            def forward(self, x):
                h = torch.relu(self.e(x))
                self.active = (h > 0).float().mean().item()
                h = torch.tensor(h.tolist())  # HERE
                return self.d(h)
        net = Net()
        for _ in range(4):
            net.zero_grad(); net(torch.randn(2, 4)).square().mean().backward()
        """,
        *("none-grad", "HERE", ""),
    ),
    "monitored, then cut": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.d = nn.Linear(4, 4), nn.Linear(4, 1)
            def forward(self, x):
                h = self.e(x)
                self.active = (h > 0).float().mean()
                h = torch.from_numpy(h.detach().numpy())  # HERE
                return self.d(h)
        net = Net()
        for _ in range(4):
            net.zero_grad(); net(torch.randn(2, 4)).square().mean().backward()
        """,
        *("none-grad", "HERE", ""),
    ),
    "a decorated forward": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 1)
            @torch.no_grad()  # HERE
            def forward(self, x):
                return self.fc(x)
        net = Net()
        raises(lambda: net(torch.randn(2, 3)).sum().backward())
        """,
        *("grad-mode-disabled", "HERE", ""),
    ),
    "inference mode": (
        """
        net = nn.Linear(3, 1)
        with torch.inference_mode():  # HERE
            loss = net(torch.randn(2, 3)).sum()
        raises(lambda: loss.backward())
        """,
        *("grad-mode-disabled", "HERE", ""),
    ),
    "a loss made of indices": (
        """
        net = nn.Linear(4, 3)
        y = net(torch.randn(5, 4))
        right = (y.argmax(1) == torch.zeros(5)).float()  # HERE
        raises(lambda: (1 - right.mean()).backward())
        """,
        *("none-grad", "HERE", ""),
    ),
}
