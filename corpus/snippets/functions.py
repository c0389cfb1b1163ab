"""Custom functions whose backward is wrong."""

from __future__ import annotations

#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "error in a custom function": (
        """
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, g):
                raise ValueError("not written yet")
        class Layer(nn.Module):
            def forward(self, x):
                return Bad.apply(x)  # HERE
        net = nn.Sequential(nn.Linear(3, 3), Layer(), nn.Linear(3, 1))
        try:
            net(torch.ones(2, 3)).sum().backward()
        except ValueError:
            pass
        """,
        *("backward-error", "HERE", "1"),
    ),
    "a gradient of the wrong shape": (
        """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x * w
            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g * w, (g * x).sum(1)
        w = torch.ones(3, requires_grad=True)
        y = Scale.apply(torch.randn(4, 3), w)  # HERE
        raises(lambda: y.sum().backward())
        """,
        *("wrong-backward-shape", "HERE", ""),
    ),
    "the function applied twice": (
        """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x * w
            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g * w, (g * x).sum(1)
        w = torch.ones(3, requires_grad=True)
        v = torch.ones(2, 1, requires_grad=True)
        y = Scale.apply(torch.randn(4, 3), w)  # HERE
        z = Scale.apply(torch.randn(3, 3), torch.ones(3, 3, requires_grad=True)[0])
        raises(lambda: (y.sum() + 0 * z.sum()).backward())
        """,
        *("wrong-backward-shape", None, ""),
    ),
}
