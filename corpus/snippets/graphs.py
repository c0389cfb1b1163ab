"""Graphs that are kept, and graphs that are gone through twice."""

from __future__ import annotations

#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "a list in a dict keeps graphs": (
        """
        class Probe:
            def __init__(self):
                self.history = {"pooled": []}
            def seen(self, out):
                self.history["pooled"].append(out)  # HERE
        net, probe = nn.Linear(4, 2), Probe()
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(8):
            out = net(torch.randn(3, 4))
            opt.zero_grad()
            out.square().mean().backward()
            opt.step()
            probe.seen(out)
        """,
        "graph-retained",
        "HERE",
        "",
    ),
    "a state that is carried on, where nothing says where a step ends": (
        """
        cell, state = nn.GRUCell(4, 8), torch.zeros(3, 8)
        for _ in range(8):
            state = cell(torch.randn(3, 4), state)  # HERE
            state.square().mean().backward(retain_graph=True)
        """,
        "graph-retained",
        "HERE",
        "",
    ),
    "an average of weights with gradient mode on": (
        """
        net = nn.Linear(6, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        average = [p.detach().clone() for p in net.parameters()]
        for step in range(24):
            opt.zero_grad()
            net(torch.randn(8, 6)).square().mean().backward()
            opt.step()
            if step > 4:
                for a, p in zip(average, net.parameters()):
                    a.mul_(0.9).add_(0.1 * p)  # HERE
        """,
        "graph-retained",
        "HERE",
        None,
    ),
    "state of the step before": (
        """
        cell, head = nn.GRUCell(3, 4), nn.Linear(4, 1)
        h = torch.zeros(2, 4)
        for step in range(5):
            h = cell(torch.randn(2, 3), h)  # HERE
            if raises(head(h).sum().backward):
                break
        """,
        *("second-backward", "HERE", "cell"),
    ),
    "features computed once": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 1)
        net = Net()
        features = torch.tanh(net.body(torch.randn(5, 3)))
        for step in range(3):
            loss = net.head(features).sum()  # HERE
            if raises(loss.backward):
                break
        """,
        *("second-backward", "HERE", "head"),
    ),
    "the same loss twice": (
        """
        a = torch.randn(3, requires_grad=True)
        loss = a.exp().sum()
        loss.backward()
        raises(lambda: loss.backward())  # HERE
        """,
        *("second-backward", "HERE", ""),
    ),
    "losses of several steps summed": (
        """
        net = nn.Linear(3, 1)
        total = 0
        for step in range(4):
            loss = net(torch.randn(2, 3)).exp().mean()
            total = total + loss  # HERE
            if raises(total.backward):
                break
        """,
        *("second-backward", "HERE", ""),
    ),
    "results of a function that are cached": (
        """
        from functools import lru_cache
        @lru_cache(maxsize=64)  # HERE
        def scaled(h):
            return h / h.detach().norm()
        net = nn.Linear(3, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(12):
            opt.zero_grad(); scaled(net(torch.randn(4, 3))).square().sum().backward(); opt.step()
        """,
        *("graph-retained", "HERE", ""),
    ),
    "a list of losses": (
        """
        net = nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        history = []
        for _ in range(8):
            loss = net(torch.randn(2, 3)).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            history.append(loss)  # HERE
        """,
        *("graph-retained", "HERE", ""),
    ),
    "a sum of losses on an object": (
        """
        class Trainer:
            def __init__(self):
                self.total = 0.0
                self.net = nn.Linear(3, 1)
                self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
            def step(self):
                loss = self.net(torch.randn(2, 3)).square().mean()
                self.opt.zero_grad(); loss.backward(); self.opt.step()
                self.total = self.total + loss  # HERE
        trainer = Trainer()
        for _ in range(8):
            trainer.step()
        """,
        *("graph-retained", "HERE", ""),
    ),
    "outputs kept in dicts": (
        """
        net = nn.Linear(3, 1)
        log = []
        for i in range(6):
            y = net(torch.randn(2, 3))
            log.append({"step": i, "y": y})  # HERE
        """,
        *("graph-retained", "HERE", ""),
    ),
    "gradients with a graph": (
        """
        net = nn.Linear(3, 1)
        for step in range(2):
            loss = net(torch.randn(2, 3)).square().sum()
            loss.backward(create_graph=True)  # HERE
        """,
        *("reference-cycle", "HERE", None),
    ),
}
