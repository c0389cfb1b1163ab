"""Checks that run only on request (``--check``)."""

from __future__ import annotations

import pytest
import torch
from scripts import line_of, run


def asked(tmp_path, topic, text):
    """The text and the findings of a script with ``--check``."""
    return run(tmp_path, text, topic)[:2]


FUNCTION = """
        class F(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return {forward}
            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return {backward}  # BACKWARD
        net = nn.Linear(3, 3)
        F.apply(net(torch.randn(4, 3))).square().sum().backward()  # HERE
"""


@pytest.mark.parametrize(
    ("forward", "backward", "wrong"),
    [
        ("x.sin()", "g * x.cos()", None),
        ("x.clamp(min=0)", "g * (x > 0)", None),
        ("x.sin()", "x.cos()", "does not depend on grad_output"),
        ("x.sin()", "g * x.sin()", ""),
        ("x**3", "2 * g * x**2", "it is the true gradient times 0.667"),
        ("x.clone()", "-0.3 * g", "with its sign reversed, times 0.3"),
        ("x.round()", "g", "a straight-through estimate"),
        ("x * 2", "torch.as_strided(g, g.shape, (g.shape[1], 1)) * 2", "as if it were contiguous"),
        ("x * torch.rand_like(x)", "g", None),  # random: two calls cannot be compared
    ],
)
def test_custom_functions_are_checked_on_request(tmp_path, forward, backward, wrong) -> None:
    text, found = asked(tmp_path, "functions", FUNCTION.format(forward=forward, backward=backward))
    if wrong is None:
        assert found == []
        return
    (finding,) = found
    assert finding.kind == "wrong-backward"
    assert [s.site.line for s in finding.sites] == [line_of(text, "# HERE"), line_of(text, "# BACKWARD")]
    assert wrong in finding.title


@pytest.mark.parametrize("later", ["4 * torch.tanh(x)", "torch.tanh(x)"])
def test_a_gradient_that_is_wrong_only_for_later_inputs(tmp_path, later) -> None:
    """The forward is bent at 2, and the backward knows nothing of it."""
    text, found = asked(
        tmp_path,
        "functions",
        f"""
        class F(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x + (x - 2).clamp(min=0)
            @staticmethod
            def backward(ctx, g):
                return g  # BACKWARD
        net = nn.Linear(3, 3)
        for step in range(40):
            x = net(3 * torch.randn(4, 3))
            F.apply(torch.tanh(x) if step < 30 else {later}).square().sum().backward()  # HERE
        """,
    )
    assert [f.kind for f in found] == (["wrong-backward"] if later.startswith("4") else [])
    assert not found or [s.site.line for s in found[0].sites] == [line_of(text, "# HERE"), line_of(text, "# BACKWARD")]


def test_a_wrong_second_derivative_is_distinguished_from_a_wrong_first_one(tmp_path) -> None:
    _, found = asked(
        tmp_path,
        "functions",
        """
        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3
            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return g * 3 * x.detach() * x  # half of the second derivative is lost
        x = torch.randn(4, requires_grad=True)
        (g,) = torch.autograd.grad(Cube.apply(x * 1).sum(), x, create_graph=True)
        g.square().sum().backward()
        """,
    )
    assert [f.kind for f in found] == ["wrong-double-backward"]


def test_two_models_of_one_structure_are_compared_on_request(tmp_path) -> None:
    script = """
        class Net(nn.Module):
            def __init__(self, slope):
                super().__init__()
                self.a = nn.Linear(3, 4)
                self.act = nn.LeakyReLU(slope)  # HERE
                self.b = nn.Linear(4, 1)
            def forward(self, x):
                return self.b(self.act(self.a(x)))
        def build(slope):
            torch.manual_seed(0)
            return Net(slope)
        x = torch.randn(5, 3)
        one, two = build(0.1), build({slope})
        print(one(x).sum(), two(x).sum())
        """
    text, (finding,) = asked(tmp_path, "divergence", script.replace("{slope}", "0.2"))
    assert (finding.kind, finding.module) == ("first-divergence", "act")
    assert finding.sites[0].site.line == line_of(text, "# HERE")
    assert "negative_slope: 0.1 and 0.2" in finding.title
    assert asked(tmp_path, "divergence", script.replace("{slope}", "0.1"))[1] == []


CHECKPOINTS = """
from torch.utils.checkpoint import checkpoint
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        return g * 0.5
calls = []
net, drop, norm = nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)
def block(x):
    h = net(x)
    {body}
    return h.tanh()
for _ in range(2):
    x = torch.randn(6, 4, requires_grad=True)
    checkpoint(block, x, use_reentrant={reentrant}, preserve_rng_state={preserve}).sum().backward()  # HERE
before = [norm.running_mean.clone(), net.weight.grad, torch.get_rng_state()]
"""


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    ("body", "preserve", "wrong"),
    [
        ("h = drop(h)", True, False),
        ("h = drop(h)", False, True),
        ("h = norm(h)", True, False),
        ("h = h * (1 + torch.rand(4))", True, False),
        ("calls.append(1); h = h * (1 + len(calls) % 2)", True, True),
        ("h = Scale.apply(h) if torch.is_grad_enabled() else h.clone()", True, None),
    ],
)
def test_checkpoints_are_compared_on_request(tmp_path, body, preserve, wrong, reentrant) -> None:
    script = CHECKPOINTS.format(body=body, reentrant=reentrant, preserve=preserve)
    text, found, space = run(tmp_path, script, "checkpoints")
    found = [f for f in found if f.kind.startswith("checkpoint-g")]
    # Where gradient mode decides, a reentrant checkpoint takes another way in the forward.
    if wrong or (wrong is None and reentrant):
        (one,) = found
        assert one.sites[0].site.line == line_of(text, "HERE")
    else:
        assert found == []
    mean, grad, state = space["before"]
    assert torch.equal(mean, space["norm"].running_mean)
    assert grad is space["net"].weight.grad
    assert torch.equal(state, torch.get_rng_state())
