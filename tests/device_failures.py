"""Scripts with common failures, for any device: they use ``device``, and ``raises`` of tests/scripts.py."""

from __future__ import annotations

#: Kind of finding and role of its main site -> script. The comment CAUSE marks the line to be named.
SCRIPTS = {
    "nonfinite-forward": (
        "cause",
        """
        model = nn.Linear(4, 4).to(device)
        for step in range(6):
            x = torch.randn(8, 4, device=device)
            out = model(x)
            if step == 4:
                out = (out * 0).log()  # CAUSE
            out.sum().backward()
        """,
    ),
    "nonfinite-backward": (
        "cause",
        """
        model = nn.Linear(4, 4).to(device)
        for step in range(6):
            out = model(torch.randn(8, 4, device=device))
            if step == 4:
                out = out - out.detach()
            out.square().sum().sqrt().backward()  # CAUSE
        """,
    ),
    "inplace": (
        "mutated",
        """
        model = nn.Linear(4, 4).to(device)
        h = model(torch.randn(8, 4, device=device)).sigmoid()
        h += 1  # CAUSE
        assert raises(h.sum().backward)
        """,
    ),
    "none-grad": (
        "cut",
        """
        first, second = nn.Linear(4, 4).to(device), nn.Linear(4, 1).to(device)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            h = first(torch.randn(8, 4, device=device)).detach()  # CAUSE
            second(h).square().mean().backward()
            optimizer.step()
        """,
    ),
    "graph-retained": (
        "held",
        """
        model = nn.Linear(4, 1).to(device)
        total = 0
        for step in range(60):
            loss = model(torch.randn(8, 4, device=device)).square().mean()
            loss.backward()
            total = total + loss  # CAUSE
        """,
    ),
    "second-backward": (
        "reused",
        """
        model = nn.Linear(4, 4).to(device)
        h = model(torch.randn(8, 4, device=device)).tanh()
        h.sum().backward()
        loss = h.square().sum()  # CAUSE
        assert raises(loss.backward)
        """,
    ),
    "zero-grad": (
        "cut",
        """
        model = nn.Linear(4, 4).to(device)
        for step in range(4):
            out = model(torch.randn(8, 4, device=device)).sign()  # CAUSE
            out.sum().backward()
        """,
    ),
}
