"""Edits of parameters' gradients: the effect of actions, their order, the log, and removal."""

from __future__ import annotations

import copy
import gc
import math
import re
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import backprobe as bp
from backprobe import gradient_ops as ops
from backprobe.basics.errors import BackprobeError

torch.set_num_threads(1)


def mlp(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3))


def loss_of(model: nn.Module, seed: int = 1) -> torch.Tensor:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
    return model(x).square().sum()


def plain_grads(model: nn.Module) -> dict[str, torch.Tensor]:
    named = dict(model.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss_of(model), list(named.values())), strict=True))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit for bit, NaN in the same places."""
    return a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())


def hooks_of(model: nn.Module) -> int:
    """All hooks on a model's modules and parameters."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    extra = ("_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs")
    count = sum(len(getattr(m, kind)) for m in model.modules() for kind in (*kinds, *extra))
    for p in model.parameters():
        count += len(p._backward_hooks or ()) + len(p._post_accumulate_grad_hooks or ())
    return count


# Actions, each against plain Python over the elements

G = [0.5, -2.0, 0.0, 3.0, -0.25, math.nan, math.inf, -math.inf]


def elementwise(function):
    return lambda values: [function(v) for v in values]


def norm(values):
    return math.sqrt(sum(v * v for v in values))


FINITE = G[:5]
CASES = [
    ("zero", ops.zero, G, elementwise(lambda v: 0.0)),
    ("clamp(min=0)", ops.clamp(min=0), G, elementwise(lambda v: v if math.isnan(v) else max(v, 0.0))),
    ("clamp(max=1)", ops.clamp(max=1), G, elementwise(lambda v: v if math.isnan(v) else min(v, 1.0))),
    ("clamp(min=-1, max=0.25)", ops.clamp(-1, 0.25), FINITE, elementwise(lambda v: min(max(v, -1.0), 0.25))),
    ("clip_value(1.0)", ops.clip_value(1.0), FINITE, elementwise(lambda v: min(max(v, -1.0), 1.0))),
    ("clip_norm(1.0)", ops.clip_norm(1.0), FINITE, lambda g: [v * (1 / norm(g)) for v in g]),
    ("clip_norm(100.0)", ops.clip_norm(100.0), FINITE, lambda g: g),
    ("clip_norm(1.0, p=1)", ops.clip_norm(1.0, p=1), FINITE, lambda g: [v * (1 / sum(map(abs, g))) for v in g]),
    ("scale(0.5)", ops.scale(0.5), G, elementwise(lambda v: v * 0.5)),
    ("reverse(2.0)", ops.reverse(2.0), G, elementwise(lambda v: v * -2.0)),
    ("replace(7.0)", ops.replace(7.0), G, elementwise(lambda v: 7.0)),
    ("drop_nonfinite()", ops.drop_nonfinite(), G, elementwise(lambda v: v if math.isfinite(v) else 0.0)),
    ("drop_nonfinite(whole=True)", ops.drop_nonfinite(whole=True), G, elementwise(lambda v: 0.0)),
    ("drop_nonfinite(whole=True)", ops.drop_nonfinite(whole=True), FINITE, lambda g: g),
]


@pytest.mark.parametrize(("text", "action", "values", "expected"), CASES, ids=[c[0] for c in CASES])
def test_action(text, action, values, expected):
    assert repr(action) == text
    grad = torch.tensor(values, dtype=torch.float64)
    kept = grad.clone()
    got = action(grad)
    assert same(grad, kept)
    torch.testing.assert_close(
        got, torch.tensor(expected(values), dtype=torch.float64), rtol=1e-15, atol=0, equal_nan=True
    )
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert action(grad.to(dtype)).dtype is dtype


def test_clip_norm_below_its_limit_changes_no_bit_and_of_zero_is_zero():
    grad = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ops.clip_norm(1e3)(grad), grad)
    assert torch.equal(ops.clip_norm(1e-3)(torch.zeros(3)), torch.zeros(3))
    assert ops.clip_norm(1.0)(grad).norm().item() == pytest.approx(1.0, rel=1e-6)
    # In half precision the norm of this one is above the largest number that there is.
    assert ops.clip_norm(1.0)(torch.full((100,), 60000.0, dtype=torch.float16)).norm().item() == pytest.approx(1, 1e-2)


def test_clip_norm_is_differentiable_at_zero_and_elsewhere():
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ops.clip_norm(0.5), x)
    z = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert torch.equal(torch.autograd.grad(ops.clip_norm(0.5)(z).sum(), z)[0], torch.ones(3, dtype=torch.float64))


def test_a_factor_may_be_a_schedule():
    factor = [1.0]
    action = ops.reverse(lambda: factor[0])
    assert action(torch.ones(1)).item() == -1.0
    factor[0] = 0.25
    assert action(torch.ones(1)).item() == -0.25


def test_noise_has_its_own_random_state():
    model, other = mlp(), mlp()
    plain = plain_grads(model)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    with bp.edit_gradients(model, "*.weight", ops.noise(0.1, seed=3)):
        loss_of(model).backward()
    assert torch.equal(torch.get_rng_state(), before)
    # The same for another set of places, and in another order: each place has its own stream.
    with bp.edit_gradients(other, {"4.weight": ops.noise(0.1, seed=3), "0.weight": ops.noise(0.1, seed=3)}):
        loss_of(other).backward()
    assert torch.equal(model[4].weight.grad, other[4].weight.grad)
    assert torch.equal(model[0].weight.grad, other[0].weight.grad)
    drawn = [model.get_parameter(name).grad - grad for name, grad in plain.items() if name.endswith("weight")]
    assert not torch.equal(drawn[0][0], drawn[1][0, :4])
    big = ops.noise(0.5, seed=1).at("x")(torch.zeros(200_000))
    assert big.std().item() == pytest.approx(0.5, rel=0.01)
    assert abs(big.mean().item()) < 0.01


def test_noise_goes_on_from_call_to_call_and_begins_anew_with_each_edit():
    drawn = []
    action = ops.noise(1.0, seed=5)
    for _ in range(2):
        p = nn.Parameter(torch.zeros(3))
        with bp.edit_gradients({"p": p}, "p", action):
            for _ in range(2):
                drawn.append(torch.autograd.grad((p * 0).sum(), p)[0])
    assert torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[1], drawn[3])
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ops.clamp(), r"clamp\(\) has no limit"),
        (lambda: ops.clamp(min=1, max=0), r"min is above max"),
        (lambda: ops.clip_norm(0), r"clip_norm\(0\): limit is a number above 0"),
        (lambda: ops.clip_value(-1), r"clip_value\(-1\)"),
        (lambda: ops.clip_norm(math.nan), r"clip_norm\(nan\)"),
        (lambda: ops.noise(-1.0), r"noise\(-1.0\): std is a finite number"),
    ],
)
def test_actions_out_of_range(make, text):
    with pytest.raises(BackprobeError, match=text):
        make()


# Parameters


def test_zero_every_linear_bias_and_nothing_else_changes():
    model = mlp()
    plain = plain_grads(model)
    with bp.edit_gradients(model, "*.bias", ops.zero) as log:
        loss_of(model).backward()
    for name, p in model.named_parameters():
        assert torch.equal(p.grad, torch.zeros_like(p) if name.endswith("bias") else plain[name])
    assert [str(e.place) for e in log.entries] == ["parameter '4.bias'", "parameter '2.bias'", "parameter '0.bias'"]
    assert log.unused == []
    assert log.counts == {f"parameter '{i}.bias'": 1 for i in (4, 2, 0)}


@pytest.mark.parametrize("action", [c[1] for c in CASES if c[2] is not G or "clip_norm" not in c[0]], ids=repr)
def test_an_edit_is_what_the_action_makes_of_autograd_grad(action):
    model = mlp()
    plain = plain_grads(model)
    with bp.edit_gradients(model, "2.*", action):
        loss_of(model).backward()
    for name, p in model.named_parameters():
        assert torch.equal(p.grad, action(plain[name]) if name.startswith("2.") else plain[name])


def test_edits_of_one_place_apply_in_the_order_of_listing():
    model = mlp()
    plain = plain_grads(model)
    up, add = ops.scale(3.0), lambda g: g + 1
    for given in ([("4.bias", up), ("*.bias", add)], {"4.bias": [up, add]}, {"4.*": up, re.compile("bias"): add}):
        with bp.edit_gradients(model, given) as log:
            loss_of(model).backward()
        assert torch.equal(model[4].bias.grad, plain["4.bias"] * 3 + 1)
        assert [e.action.split(" at ")[0] for e in log.entries][:2] == ["scale(3.0)", "lambda"]
        model.zero_grad()
    with bp.edit_gradients(model, [("4.bias", add), ("4.bias", up)]):
        loss_of(model).backward()
    assert torch.equal(model[4].bias.grad, (plain["4.bias"] + 1) * 3)


def test_edits_made_earlier_come_first():
    model = mlp()
    plain = plain_grads(model)
    with bp.edit_gradients(model, "4.bias", ops.scale(3.0)), bp.edit_gradients(model, "4.bias", lambda g: g + 1):
        loss_of(model).backward()
    assert torch.equal(model[4].bias.grad, plain["4.bias"] * 3 + 1)


def test_the_log_says_what_was_done():
    model = mlp()
    plain = plain_grads(model)
    with bp.edit_gradients(model, "4.bias", ops.clamp(min=0), keep=2) as log:
        for _ in range(3):
            loss_of(model).backward()
            model.zero_grad()
    grad = plain["4.bias"]
    assert (log.total, log.backwards, len(log.entries)) == (3, 3, 2)
    entry = log.entries[-1]
    assert (entry.backward, entry.elements, entry.action) == (3, 3, "clamp(min=0)")
    assert entry.norm_before == pytest.approx(grad.norm().item(), rel=1e-6)
    assert entry.norm_after == pytest.approx(grad.clamp(min=0).norm().item(), rel=1e-6)
    assert entry.changed == int((grad < 0).sum())
    assert str(log).splitlines() == ["3 edits in 3 backward calls", "  parameter '4.bias': 3"]
    assert repr(entry).startswith("backward 3: clamp(min=0) on parameter '4.bias': norm ")


def test_unmeasured_values_are_none():
    model = mlp()
    with bp.edit_gradients(model, "4.bias", ops.zero, measure=False) as log:
        loss_of(model).backward()
    entry = log.entries[0]
    assert (entry.norm_before, entry.norm_after, entry.changed) == (None, None, None)
    assert repr(entry) == "backward 1: zero on parameter '4.bias'"


def test_nan_that_stays_has_not_changed():
    p = nn.Parameter(torch.tensor([1.0, 2.0]))
    with bp.edit_gradients({"p": p}, "p", lambda g: g + torch.tensor([1.0, 0.0])) as log:
        (p * torch.tensor([1.0, math.nan])).sum().backward()
    assert log.entries[0].changed == 1


def test_backward_calls_have_numbers_also_those_that_edit_nothing():
    model, other = mlp(), mlp()
    with bp.edit_gradients(model, "4.bias", ops.zero) as log:
        loss_of(other).backward()
        loss_of(model).backward()
        torch.autograd.grad(loss_of(model), model[4].bias)
    assert [e.backward for e in log.entries] == [2, 3]
    assert log.backwards == 3


def test_accumulation_each_and_accumulated():
    """``each`` edits what a call adds; ``accumulated`` edits the sum, again after each call."""
    model = mlp()
    plain = plain_grads(model)["4.weight"]
    with bp.edit_gradients(model, "4.weight", ops.scale(0.5)):
        loss_of(model).backward()
        loss_of(model).backward()
    assert torch.equal(model[4].weight.grad, plain * 0.5 + plain * 0.5)
    model.zero_grad()
    with bp.edit_gradients(model, "4.weight", ops.scale(0.5), when="accumulated"):
        loss_of(model).backward()
        held = model[4].weight.grad
        loss_of(model).backward()
        assert torch.equal(torch.autograd.grad(loss_of(model), model[4].weight)[0], plain)
    assert torch.equal(model[4].weight.grad, (plain * 0.5 + plain) * 0.5)
    assert held is model[4].weight.grad
    assert hooks_of(model) == 0


@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True")
def test_double_backward_each_call_is_edited():
    """Against the same by hand: the hook is the map g -> 3g at every gradient that enters the parameter."""
    p = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    with bp.edit_gradients({"p": p}, "p", ops.scale(3.0)):
        (g,) = torch.autograd.grad(p**3, p, create_graph=True)
        assert g.item() == 3 * 3 * 4
        (gg,) = torch.autograd.grad(g, p)
    assert gg.item() == 3 * (3 * 6 * 2)
    with bp.edit_gradients({"p": p}, "p", ops.scale(3.0), when="each"):
        (p**3).backward(create_graph=True)
    assert p.grad.item() == 36
    assert p.grad.requires_grad


@pytest.mark.parametrize("when", ["each", "accumulated"])
def test_create_graph_keeps_the_graph_through_the_edit(when):
    p = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with bp.edit_gradients(nn.ParameterList([p]), "0", ops.scale(3.0), when=when):
            (p**3).backward(create_graph=True)
    assert torch.autograd.grad(p.grad, p)[0].item() == 36


def test_retained_graph_and_inputs():
    model = mlp()
    plain = plain_grads(model)
    with bp.edit_gradients(model, "*.bias", ops.reverse()) as log:
        loss = loss_of(model)
        loss.backward(retain_graph=True, inputs=[model[0].bias])
        assert model[4].bias.grad is None
        loss.backward()
    assert torch.equal(model[0].bias.grad, -plain["0.bias"] * 2)
    assert torch.equal(model[4].bias.grad, -plain["4.bias"])
    assert [e.backward for e in log.entries] == [1, 2, 2, 2]


def test_tied_parameters_are_edited_once():
    model = mlp()
    model[4] = nn.Linear(5, 5)
    model[4].weight = model[2].weight
    plain = plain_grads(model)
    with bp.edit_gradients(model, {"4.weight": ops.scale(2.0), "2.weight": lambda g: g + 1}) as log:
        loss_of(model).backward()
    assert torch.equal(model[2].weight.grad, plain["2.weight"] * 2 + 1)
    assert [str(e.place) for e in log.entries] == ["parameter '2.weight' (also '4.weight')"] * 2
    assert log.unused == []
    model.zero_grad()
    with bp.edit_gradients(model, "*.weight", ops.scale(2.0)):
        loss_of(model).backward()
    assert torch.equal(model[2].weight.grad, plain["2.weight"] * 2)


def test_a_parameter_used_several_times_is_edited_in_the_sum():
    p = nn.Parameter(torch.tensor([1.0]))
    with bp.edit_gradients(nn.ParameterList([p]), "0", lambda g: g.clamp(min=0)):
        (p * 3 + p * -1 + p.square() * -2).backward()
    assert p.grad.item() == 0.0  # of -2; each use apart would give 3


def test_replaced_frozen_and_unfrozen_parameters():
    model = mlp()
    model[0].bias.requires_grad_(False)
    old = model[4].bias
    with bp.edit_gradients(model, "*.bias", ops.zero) as log:
        assert [str(u) for u in log.unused if "0.bias" in str(u)] == [
            "zero on parameter '0.bias': it is frozen (requires_grad is False)"
        ]
        model[4].bias = nn.Parameter(torch.ones(3))
        model[0].bias.requires_grad_(True)
        loss_of(model).backward()
        assert not old._backward_hooks
    assert torch.equal(model[4].bias.grad, torch.zeros(3))
    assert torch.equal(model[0].bias.grad, torch.zeros(5))
    assert log.unused == []


def test_lazy_parameters():
    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1))
    with bp.edit_gradients(model, "*.bias", ops.zero) as log:
        assert "it was not initialised" in str(log.unused[0])
        model(torch.ones(2, 4)).sum().backward()
    assert torch.equal(model[0].bias.grad, torch.zeros(3))
    assert log.unused == []


def test_a_parameter_without_gradient_is_reported():
    model = mlp()
    with bp.edit_gradients(model, "*.bias", ops.zero) as log:
        model[0](torch.ones(1, 4)).sum().backward()
    assert [str(u) for u in log.unused] == [
        "zero on parameter '2.bias': no gradient came",
        "zero on parameter '4.bias': no gradient came",
    ]


def test_an_edit_that_never_applied_warns_at_the_end_of_the_block():
    model = mlp()
    text = "an edit was never applied: zero on parameter '4.bias': no gradient came"
    with pytest.warns(UserWarning, match=text), bp.edit_gradients(model, "4.bias", ops.zero):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError), bp.edit_gradients(model, "4.bias", ops.zero):
            raise KeyError
        with bp.edit_gradients(model, "*.bias", ops.zero):
            loss_of(model).backward()


def test_sparse_gradients():
    def grad_of(action=None):
        torch.manual_seed(0)
        table = nn.Embedding(5, 2, sparse=True)
        out = table(torch.tensor([1, 3, 1])) * torch.tensor([[1.0], [2.0], [-4.0]])
        if action is None:
            out.sum().backward()
            return table.weight.grad, None
        with bp.edit_gradients(table, "weight", action) as log:
            out.sum().backward()
        return table.weight.grad, log

    dense = grad_of()[0].to_dense()
    for action in (
        *(ops.zero, ops.scale(2.0), ops.clip_value(2.5), ops.clip_norm(1.0), ops.reverse()),
        *(ops.clamp(min=0), ops.drop_nonfinite(), ops.replace(0.0)),
    ):
        got, log = grad_of(action)
        assert got.layout is torch.sparse_coo
        torch.testing.assert_close(got.to_dense(), action(dense))
        assert log.entries[0].norm_before == pytest.approx(dense.norm().item())
        assert log.entries[0].norm_after == pytest.approx(action(dense).norm().item())
    for action in (ops.clamp(min=1), ops.noise(1.0), ops.replace(1.0)):
        with pytest.raises(BackprobeError, match="cannot edit a sparse gradient") as error:
            grad_of(action)
        assert "on parameter 'weight'" in error.value.__notes__[0]
    with pytest.raises(BackprobeError, match=r"layout torch.strided where the gradient has torch.sparse_coo"):
        grad_of(lambda g: g.to_dense())


def test_grad_scaler_hands_edits_scaled_gradients():
    model = mlp()
    plain = plain_grads(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with bp.edit_gradients(model, "4.bias", ops.clip_value(1e9)) as log:
        scaler.scale(loss_of(model)).backward()
    assert log.entries[0].norm_before == pytest.approx(8 * plain["4.bias"].norm().item(), rel=1e-6)
    scaler.unscale_(optimizer)
    assert torch.equal(model[4].bias.grad, plain["4.bias"])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(reentrant):
    model = mlp()
    plain = plain_grads(model)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    with bp.edit_gradients(model, "*.weight", ops.scale(2.0)) as log:
        checkpoint(model, x, use_reentrant=reentrant).square().sum().backward()
    for name, p in model.named_parameters():
        assert torch.equal(p.grad, plain[name] * (2 if name.endswith("weight") else 1))
    assert log.total == 3


# What functions may give


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda g: g[:1], r"gave shape \(1,\) where the gradient has \(3,\)"),
        (lambda g: g.double(), r"gave dtype torch.float64 where the gradient has torch.float32"),
        (lambda g: g.to("meta"), r"gave device meta where the gradient has cpu"),
        (lambda g: g.to_sparse(), r"gave layout torch.sparse_coo"),
        (lambda g: 0.0, r"gave a float, not a tensor"),
        (lambda g: g.clamp_(min=0), r"wrote into the gradient that it was given"),
        (ops.replace(torch.zeros(2)), r"replace\(tensor of \[2\]\) on parameter '4.bias'.* gave shape \(2,\)"),
    ],
)
def test_an_invalid_replacement_gradient_is_rejected(function, text):
    model = mlp()
    with pytest.raises(BackprobeError, match=text) as error, bp.edit_gradients(model, "4.bias", function):
        loss_of(model).backward()
    assert "on parameter '4.bias', in backward call 1," in str(error.value)
    assert hooks_of(model) == 0
    plain = plain_grads(model)
    model.zero_grad()
    loss_of(model).backward()
    assert all(torch.equal(p.grad, plain[name]) for name, p in model.named_parameters())


def test_none_leaves_the_gradient_as_it_is():
    model = mlp()
    plain = plain_grads(model)
    seen = []
    with bp.edit_gradients(model, "4.bias", seen.append) as log:
        loss_of(model).backward()
    assert torch.equal(model[4].bias.grad, plain["4.bias"])
    assert (len(seen), log.entries[0].changed) == (1, 0)


def test_an_error_of_the_users_function_comes_through_with_a_note():
    def halve(grad):
        raise ZeroDivisionError("mine")

    model = mlp()
    with pytest.raises(ZeroDivisionError, match="mine") as error, bp.edit_gradients(model, "2.bias", halve):
        loss_of(model).backward()
    assert error.value.__notes__ == ["backprobe: in the edit halve on parameter '2.bias', in backward call 1"]
    assert hooks_of(model) == 0
    assert torch.overrides._get_current_function_mode_stack() == []
    model.zero_grad()
    with bp.edit_gradients(model, "2.bias", ops.zero) as log:
        loss_of(model).backward()
    assert log.entries[0].backward == 1


def test_a_lambda_is_named_by_its_line():
    model = mlp()
    with bp.edit_gradients(model, "2.bias", lambda g: g) as log:
        loss_of(model).backward()
    assert re.fullmatch(r"lambda at test_edit.py:\d+", log.entries[0].action)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda m: bp.edit_gradients("*.bias", ops.zero),
            r"names belong to a model: edit_gradients\(model, '\*.bias', action\)",
        ),
        (
            lambda m: bp.edit_gradients(m, "*.bais", ops.zero),
            r"no parameter fits '\*.bais'; names are like '4.bias', '2.bias', '0.bias'",
        ),
        (
            lambda m: bp.edit_gradients(m, "*.bias"),
            r"no action for '\*.bias': write edit_gradients\(model, '\*.bias', gradient_ops.zero\)",
        ),
        (lambda m: bp.edit_gradients(m, "*.bias", 3), r"the action for '\*.bias' is a int; give a function"),
        (
            lambda m: bp.edit_gradients(m, "*.bias", ops.clamp),
            r"is clamp itself; call it .* backprobe.gradient_ops.clamp\(min=0\)",
        ),
        (lambda m: bp.edit_gradients(m, {}), r"the mapping from names to actions is empty"),
        (lambda m: bp.edit_gradients(m, {"*": ops.zero}, ops.zero), r"not both"),
        (
            lambda m: bp.edit_gradients(m, "*", ops.zero, where="weights"),
            r"where is 'weights'; it is one of 'parameter'",
        ),
        (
            lambda m: bp.edit_gradients({}, "*", ops.zero, where="output"),
            r"outputs and inputs belong to a torch.nn.Module",
        ),
        (
            lambda m: bp.edit_gradients(m, "*", ops.zero, side="in"),
            r"side is for where='node', not for where='parameter'",
        ),
        (lambda m: bp.edit_gradients(m, "*", ops.zero, when="later"), r"when is 'later'"),
        (
            lambda m: bp.edit_gradients(m, "*", ops.zero, where="output", when="accumulated"),
            r"when is for where='parameter'",
        ),
        (lambda m: bp.edit_gradients(m, "9", ops.zero, where="output"), r"no module fits '9'"),
        (lambda m: bp.edit_gradients({"a": torch.ones(1)}, "a", ops.zero), r"'a' does not require a gradient"),
        (lambda m: bp.edit_gradients({"a": torch.ones(1)}, "b", ops.zero), r"no tensor fits 'b'"),
        (lambda m: bp.edit_gradients(loss_of(m), "Relu*", ops.zero), r"no node fits 'Relu\*'"),
        (lambda m: bp.edit_gradients(None, "*", ops.zero, module="0"), r"module='0' chooses modules of a model"),
        (lambda m: bp.edit_gradients(m, "*", ops.zero, keep=-1), r"keep is -1"),
    ],
)
def test_wrong_use(call, text):
    model = mlp()
    with pytest.raises(BackprobeError, match=text):
        call(model)
    assert hooks_of(model) == 0
    assert torch.overrides._get_current_function_mode_stack() == []


# Undone


def test_remove_and_the_mode_below_others():
    from torch.overrides import TorchFunctionMode

    class Other(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    model = mlp()
    log = bp.edit_gradients(model, "*.bias", ops.zero)
    with Other() as other:
        log.remove()
        assert torch.overrides._get_current_function_mode_stack() == [other]
        log.remove()
    assert torch.overrides._get_current_function_mode_stack() == []
    assert hooks_of(model) == 0


def test_an_edit_may_be_removed_from_inside():
    model = mlp()
    with bp.edit_gradients(model, "*.bias", lambda g: log.remove() or g * 0) as log:
        loss_of(model).backward()
    assert log.total == 1
    assert hooks_of(model) == 0
    assert torch.overrides._get_current_function_mode_stack() == []


def test_nothing_is_kept_alive():
    model = mlp()
    refs = [weakref.ref(model), weakref.ref(model[0].weight)]
    with bp.edit_gradients(model, {"*.bias": ops.zero}) as log:
        loss = loss_of(model)
        loss.backward()
        del model, loss
        gc.collect()
        assert [r() for r in refs] == [None, None]
    assert log.total == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "3 edits" in str(log)


def test_a_copy_of_an_edited_model_is_not_edited():
    model = mlp()
    with (
        bp.edit_gradients(model, "4", ops.zero, where="output"),
        bp.edit_gradients(model, "2", ops.zero, where="input"),
        bp.edit_gradients(model, "*", ops.zero, where="node"),
    ):
        twin = copy.deepcopy(model)
        loss_of(model).backward()
        loss_of(twin).backward()
    plain = plain_grads(model)
    assert all(torch.equal(p.grad, plain[name]) for name, p in twin.named_parameters())


@pytest.mark.parametrize("name", ["attach", "multi"])
def test_the_examples_in_docstrings(name):
    import doctest
    import importlib

    done = doctest.testmod(importlib.import_module(f"backprobe.user_tools.editing.{name}"))
    assert done.attempted > 2
    assert done.failed == 0


def test_two_threads_each_with_its_own_edit():
    results, errors = {}, []

    def work(k: int) -> None:
        try:
            model = mlp(k)
            plain = plain_grads(model)
            with bp.edit_gradients(model, "*.bias", ops.scale(float(k + 2))) as log:
                for _ in range(20):
                    model.zero_grad()
                    loss_of(model).backward()
            ok = all(
                torch.equal(p.grad, plain[n] * (k + 2) if n.endswith("bias") else plain[n])
                for n, p in model.named_parameters()
            )
            results[k] = (ok, log.total, log.entries[-1].backward)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors
    assert results == dict.fromkeys(range(4), (True, 60, 20))


def test_public_names_work_in_any_order_of_import(tmp_path):
    import subprocess
    import sys

    for first in (
        "bp.gradient_ops.zero; assert bp.edit_gradients.__name__ == 'edit_gradients'",
        "__import__('backprobe.user_tools.editing.log')",
    ):
        script = (
            f"import backprobe as bp, torch\n{first}\nm = torch.nn.Linear(2, 1)\n"
            "with bp.edit_gradients(m, 'bias', bp.gradient_ops.zero): m(torch.ones(1, 2)).sum().backward()\n"
            "assert m.bias.grad.item() == 0\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
