"""Scripts as people write them: each with one mistake of a kind that is often reported, or with none (``examples``).

``EXPECT`` says the kind of the first finding, the role of a site and the comment that marks its line, the module.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from corpora import expectation, lines_of
from forked import found_in

from backprobe.findings import own_rules

TESTS_FOLDER = Path(__file__).parent
CASES = {path.stem: path for path in sorted((TESTS_FOLDER.parent / "examples").glob("*/*.py"))}


def test_every_kind_has_an_example() -> None:
    shown = {expectation(path.read_text())["kind"] for path in CASES.values()}
    assert shown - {None} == {kind.name for kind in own_rules().kinds}


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """Name -> exit code, what was found, and the report."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    scripts = {}
    for name, path in CASES.items():
        if name in chosen:
            ask = expectation(path.read_text()).get("ask")
            scripts[name] = (str(path), ["--check", ask] if ask else [])
    return found_in(tmp_path_factory.mktemp("cases"), scripts)


def autocast_keeps_casts_without_gradient() -> bool:
    """Whether a weight that autocast has cast under ``no_grad`` has no gradient later in its block: a fault of torch's
    that newer versions do not have."""
    layer, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            layer(x)
        return not layer(x).requires_grad


def first_of_each_kind() -> set[str]:
    """And of the healthy ones every fourth."""
    kinds: dict[str | None, list[str]] = {}
    for name, path in CASES.items():
        kinds.setdefault(expectation(path.read_text())["kind"], []).append(name)
    return {*kinds.pop(None)[::4], *(names[0] for names in kinds.values())}


LONG_CASES = sorted(first_of_each_kind())
QUICK_CASES = frozenset(LONG_CASES[::2])


def case(name: str) -> object:
    """A script of each kind runs before each submission, half of them before each commit."""
    if name in QUICK_CASES:
        return name
    return pytest.param(name, marks=pytest.mark.long if name in LONG_CASES else pytest.mark.slow)


@pytest.mark.parametrize("name", [case(name) for name in CASES])
def test_the_first_finding_is_the_mistake(name: str, runs) -> None:
    text = CASES[name].read_text()
    expect = expectation(text)
    if name == "checkpoint_autocast_weight_cache" and autocast_keeps_casts_without_gradient():
        pytest.skip("this torch's autocast loses the gradient of the weights, so the script is not healthy on it")
    _, findings, report = runs(name)
    assert "internal error" not in report
    if expect["kind"] is None:
        assert [f["title"] for f in findings if f["severity"] != "info"] == []
        return
    assert findings, report
    first = findings[0]
    wanted = [(expect["kind"], *reversed(expect["line"]))] if "line" in expect else []
    if not wanted:
        assert first["kind"] == expect["kind"], report
        assert set(expect.get("parameters", ())) <= set(first["parameters"])
    elif not any(
        first["kind"] == kind and any(s["role"] == role and s["line"] in lines_of(text, marker) for s in first["sites"])
        for kind, marker, role in [*wanted, *expect.get("or", ())]
    ):
        pytest.fail(f"expected {expect}\n{report}")
    if "module" in expect:
        assert first["module"] == expect["module"], report
