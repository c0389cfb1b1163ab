"""Out-of-memory errors in a backward: the finding names memory by line, and the script continues as without us."""

from __future__ import annotations

import pytest
import torch
from allocating import WANTED, Allocates
from handmade import kinds, only
from torch import nn

import backprobe
from backprobe.observe.backward.failed_allocations import wanted_bytes

BATCH, WIDTH = 64, 256
#: Bytes of a batch of hidden values in float32. They exceed what a session holds itself in closely inspected steps.
HIDDEN = BATCH * WIDTH * 4


def trained(fails_in: int, steps: int) -> list[torch.Tensor]:
    """Train; the backward of one step fails after the last layer's. Return all gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    gradients: list[torch.Tensor] = []
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(BATCH, WIDTH)
        h = model[2](model[1](model[0](x)))  # SAVED
        if step == fails_in:
            h = Allocates.apply(h)  # ALLOCATED
        try:
            model[3](h).square().mean().backward()
        except RuntimeError as error:
            assert step == fails_in and "can't allocate memory" in str(error)
        gradients += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    return gradients


@pytest.mark.parametrize("level", ["minimal", "nodes", "full"])
@pytest.mark.parametrize(("fails_in", "budget"), [(0, None), (6, None), (40, 0.01)])
def test_saved_memory_is_counted_by_line(level: str, fails_in: int, budget: float | None) -> None:
    plain = trained(fails_in, fails_in + 3)
    with backprobe.trace(level=level, budget=budget) as trace:
        watched = trained(fails_in, fails_in + 3)
    assert len(plain) == len(watched) and all(map(torch.equal, plain, watched))
    assert kinds(trace) == ["out-of-memory"]
    found = only(trace)
    # The inputs of GELU and of the third layer; ``x`` is a variable, and the fourth layer had run.
    assert found.evidence["graph_bytes"] == 2 * HIDDEN
    assert found.evidence["wanted_bytes"] == WANTED
    assert found.evidence["parameter_bytes"] == 4 * (2 * WIDTH * (WIDTH + 1) + 8 * (WIDTH + 1))
    texts = {place.role: place.site.text for place in found.sites}
    assert texts["allocated"].endswith("# ALLOCATED") and found.sites[0].role == "allocated"
    inferred = level == "minimal" or budget is not None
    if not inferred:
        assert found.evidence["by_op"] == {"gelu": HIDDEN, "linear": HIDDEN}
    # Lines of an unrecorded step are inferred: none is better than a wrong one.
    assert texts.get("saved", "# SAVED" if inferred else "").endswith("# SAVED")
    assert found.step == fails_in
    assert found.confidence == "certain" or inferred  # a budget may record that step


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4503599627370496 bytes. Error", 1 << 52),
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.10 GiB", 20 << 20),
        ("CUDA out of memory. Tried to allocate 4096.00 GiB.", 1 << 42),
        ("HIP out of memory. Tried to allocate 512 B.", 512),
        ("out of memory", None),
        ("Tried to allocate 3 EB", None),
    ],
)
def test_the_size_of_the_request(text: str, count: int | None) -> None:
    assert wanted_bytes(text) == count
