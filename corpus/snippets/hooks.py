"""Hooks that do not see, or give, what they should."""

from __future__ import annotations

#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "a hook that changes the size": (
        """
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        def cut_short(module, grad_inputs, grad_outputs):
            return (grad_inputs[0][:2],)
        net[1].register_full_backward_hook(cut_short)
        raises(net(torch.randn(6, 4)).sum().backward)  # HERE
        """,
        "backward-error",
        "HERE",
        "1",
    ),
    "an optimizer that steps in hooks on parameters": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        def step(p):
            if p.grad is not None:  # HERE
                p.data.sub_(0.01 * p.grad)
                p.grad = None
        for p in net.parameters():
            p.register_hook(lambda g, p=p: step(p))
        for _ in range(3):
            net(torch.randn(4, 3)).square().mean().backward()
        """,
        "hook-order",
        "HERE",
        None,
    ),
    "a hook on a parameter that reads its gradient": (
        """
        net = nn.Linear(3, 2)
        norms = []
        net.weight.register_hook(lambda g: norms.append(net.weight.grad))  # HERE
        for _ in range(3):
            net(torch.randn(4, 3)).sum().backward()
        """,
        "hook-order",
        "HERE",
        "",
    ),
    "a hook that fails on a gradient that is not there": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        def clip(g, p=net[1].bias):
            return g / p.grad.norm()  # HERE
        net[1].bias.register_hook(clip)
        try:
            net(torch.randn(4, 3)).sum().backward()
        except AttributeError:
            pass
        """,
        "hook-order",
        "HERE",
        "1",
    ),
    "a backward pre-hook that reads the gradient of the step before": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        seen = []
        def look(module, grad_output):
            seen.append(module.weight.grad)  # HERE
        net[1].register_full_backward_pre_hook(look)
        for _ in range(3):
            net(torch.randn(4, 3)).sum().backward()
        """,
        "hook-order",
        "HERE",
        "1",
    ),
    "a full hook before an in-place relu": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
        net[0].register_full_backward_hook(lambda m, gi, go: None)  # HERE
        raises(lambda: net(torch.randn(2, 3)))
        """,
        *("hook-inplace-conflict", "HERE", "0"),
    ),
    "a hook on a module that returns a dict": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x):
                return {"y": self.fc(x)}
        def show(m, gi, go):
            print(go)
        net = Net()
        other = nn.Linear(3, 3)
        other.register_full_backward_hook(print)
        net.register_full_backward_hook(show)  # HERE
        net(torch.randn(2, 3, requires_grad=True))["y"].sum().backward()
        """,
        *("hook-never-fires", "HERE", ""),
    ),
    "a hook on a module whose forward is called": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        net[1].register_full_backward_hook(lambda m, gi, go: None)  # HERE
        for _ in range(2):
            net[1].forward(net[0](torch.randn(2, 3))).sum().backward()
        """,
        *("hook-never-fires", "HERE", "1"),
    ),
    "the legacy hook": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x):
                return torch.tanh(self.fc(x)) * 2
        net = Net()
        net.register_backward_hook(lambda m, gi, go: None)  # HERE
        net(torch.randn(2, 3)).sum().backward()
        """,
        *("legacy-hook-partial", "HERE", ""),
    ),
}
