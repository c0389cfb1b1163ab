"""Checkpoints: what they recompute differs, or they lose gradients."""

from __future__ import annotations

CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop, self.calls = nn.Linear(4, 4), nn.Dropout(0.5), 0
    def forward(self, x):
        self.calls += 1
        h = self.linear(x)
        if {when}:
            h = {op}  # HERE
        return h.sin().relu()
block = Block()
model = nn.Sequential(nn.Linear(4, 4), block)
for _ in range(2):
    h = model[0](torch.randn(6, 4))
    out = checkpoint(block, h, use_reentrant={reentrant}{more})
    {after}
    {end}
"""


def checkpointed(when="True", op="h", reentrant=False, more="", after="", end="out.sum().backward()"):
    """A script with a checkpointed block that does `op` in the calls in which `when` holds."""
    return CHECKPOINTED.format(when=when, op=op, reentrant=reentrant, more=more, after=after, end=end)


RAISES = "raises(out.sum().backward)"
#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "an op more in the recomputation": (
        checkpointed("self.calls % 2 == 0", "torch.tanh(h)", end=RAISES),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "an op less in the recomputation": (
        checkpointed("self.calls % 2", "torch.tanh(h)", end=RAISES),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "an op more in a reentrant recomputation": (
        checkpointed("self.calls % 2 == 0", "h.exp()", reentrant=True),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "another shape in the recomputation": (
        checkpointed(op="h[: 3 + self.calls]", end=RAISES),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "another dtype in the recomputation": (
        checkpointed(op="h.to(torch.float64 if self.calls % 2 else torch.float32)", end=RAISES),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "dropout whose random state is not kept": (
        checkpointed(op="self.drop(h)", more=", preserve_rng_state=False"),
        "checkpoint-mismatch",
        "HERE",
        "1.drop",
    ),
    "a count in the values of a recomputation": (
        checkpointed(op="h * self.calls", reentrant=True),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "another function at the end of a recomputation": (
        """
        from torch.utils.checkpoint import checkpoint
        net, flag = nn.Linear(4, 4), [True]
        def block(x):
            h = net(x)
            if flag[0]:
                return torch.sigmoid(h)
            return torch.tanh(h)  # HERE
        for _ in range(2):
            loss = checkpoint(block, torch.randn(3, 4), use_reentrant=False).sum()
            flag[0] = not flag[0]
            loss.backward()
            flag[0] = True
        """,
        "checkpoint-mismatch",
        "HERE",
        "",
    ),
    "frozen between forward and recomputation": (
        checkpointed(after="model.requires_grad_(False)", end=RAISES + "; model.requires_grad_(True)"),
        "checkpoint-mismatch",
        "h = self.linear(x)",
        "1.linear",
    ),
    "weights stepped between forward and recomputation": (
        checkpointed(after="with torch.no_grad(): block.linear.weight.mul_(2)  # CHANGED"),
        "checkpoint-mismatch",
        "CHANGED",
        "1.linear",
    ),
    "evaluation mode between forward and recomputation": (
        checkpointed(op="self.drop(h)", after="model.eval()", end=RAISES + "; model.train()"),
        "checkpoint-mismatch",
        "HERE",
        "1.drop",
    ),
    "an input of a checkpoint changed in place": (
        checkpointed(after="h += 1  # CHANGED", end=RAISES),
        "inplace",
        "CHANGED",
        None,
    ),
    "a reentrant checkpoint whose input needs no gradient": (
        """
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
            def forward(self, x):
                return self.last(checkpoint(self.first, x, use_reentrant=True))  # HERE
        net = Net()
        for _ in range(3):
            net(torch.randn(5, 4)).sum().backward()
        """,
        "none-grad",
        "HERE",
        "",
    ),
    "batch norm inside a checkpoint": (
        """
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.block, self.fc = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), nn.Linear(3, 1)
            def forward(self, x):
                return self.fc(checkpoint(self.block, x, use_reentrant=False))  # HERE
        net = Net()
        net(torch.randn(4, 3)).sum().backward()
        """,
        *("checkpoint-side-effect", "HERE", "block.1"),
    ),
}
