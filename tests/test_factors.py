"""The line that computes the number by which a line multiplies something."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

from backprobe.records import Site
from backprobe.source.factors import factor_computed

METHOD = """
class Fitter:
    def weight(self):
        return self.seen / self.warmup  # computed

    def step(self, error, kl):
        return error + self.weight() * kl  # multiplied
"""
PROPERTY = """
class Fitter:
    @property
    def beta(self):
        return min(4.0, self.seen * 0.1)  # computed

    def step(self, error, kl):
        return error + kl * self.beta  # multiplied
"""
RAISED = """
class Model:
    def __init__(self):
        self.beta = 0.0

    def step(self, error, kl):
        return error + self.beta * kl  # multiplied

    def end(self):
        self.beta += 0.01  # computed
"""
SET_FROM_OUTSIDE = """
class Model:
    def step(self, error, kl):
        return error + self.beta * kl  # multiplied

def train(model):
    for epoch in range(90):
        model.beta = epoch / 10  # computed
"""
ARGUMENT = """
def elbo(error, kl, beta):
    return error + beta * kl  # multiplied

def train(batches):
    for step, (error, kl) in enumerate(batches):
        weight = math.exp(step / 90) - 1
        elbo(error, kl, step / 50).backward()  # computed
"""
VARIABLE = """
for step, x in enumerate(batches):
    mean, logvar = encode(x)
    kl = (logvar.exp() + mean ** 2 - 1 - logvar).sum(1).mean() / 2
    beta = (step + 1) / 300  # computed
    loss = error + beta * kl  # multiplied
"""
ON_THE_LINE = """
for step, x in enumerate(batches):
    loss = error + step / 300 * kl  # multiplied
"""
CONSTANT = """
BETA = 4.0

def loss(error, kl):
    return error + BETA * kl  # multiplied
"""
TWO_FACTORS = """
def loss(step, error, kl):
    slow = step / 900
    fast = step / 30
    return error + slow * fast * kl  # multiplied
"""


@pytest.mark.parametrize(
    "source", [METHOD, PROPERTY, RAISED, SET_FROM_OUTSIDE, ARGUMENT, VARIABLE, ON_THE_LINE, CONSTANT, TWO_FACTORS]
)
def test_line_that_computes_a_factor(source: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    linecache.checkcache()
    lines = {text.partition("  # ")[2]: n for n, text in enumerate(source.splitlines(), 1) if "  # " in text}
    found = factor_computed(Site(str(file), lines["multiplied"], "", ""), [str(file)])
    assert (found.line if found is not None else None) == lines.get("computed")
