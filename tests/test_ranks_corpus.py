"""Scripts of several ranks (set ``ranks`` of ``corpus``): healthy ones have no findings, planted failures are found."""

from __future__ import annotations

from typing import Any

import pytest
from corpora import load_set, selected_names
from ranked import JobOutput, run_ranks

HEALTHY, FAILING = load_set("ranks", healthy=True), load_set("ranks", healthy=False)
BUDGETS = ("default", "none")

pytestmark = pytest.mark.slow


def test_there_are_enough_of_them() -> None:
    assert len(HEALTHY) >= 14
    assert len(FAILING) >= 18


@pytest.fixture(scope="module")
def healthy(request, tmp_path_factory) -> dict[str, JobOutput]:
    """Name and budget, or ``alone``."""
    jobs: dict[str, dict[str, Any]] = {}
    for name in sorted(selected_names(request, "test_a_healthy_script_is_as_alone_and_silent")):
        script = str(HEALTHY[name].path)
        jobs[f"{name}.alone"] = {"script": script, "watched": False}
        for budget in BUDGETS:
            environment = {"BACKPROBE_BUDGET": "5%" if budget == "default" else budget}
            jobs[f"{name}.{budget}"] = {"script": script, "environment": environment}
    return run_ranks(tmp_path_factory.mktemp("healthy"), jobs)


@pytest.fixture(scope="module")
def failing(request, tmp_path_factory) -> dict[str, JobOutput]:
    names = sorted(selected_names(request, "test_a_planted_failure_comes_first"))
    return run_ranks(tmp_path_factory.mktemp("failing"), {name: {"script": str(FAILING[name].path)} for name in names})


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_healthy_script_is_as_alone_and_silent(name: str, budget: str, healthy) -> None:
    alone, watched = healthy[f"{name}.alone"], healthy[f"{name}.{budget}"]
    assert alone.codes == [0, 0], alone.err
    assert (watched.codes, watched.out) == (alone.codes, alone.out)  # which ends with a hash of the weights
    assert [f["title"] for f in watched.findings] == []
    assert "internal error" not in "".join(watched.err)


@pytest.mark.parametrize("name", FAILING)
def test_a_planted_failure_comes_first(name: str, failing) -> None:
    expect, ended = FAILING[name].expect, failing[name]
    assert ended.findings, ended.err
    first = ended.findings[0]
    kinds = expect["kind"]  # several where torch may crash a rank, or not
    assert first["kind"] in ([kinds] if isinstance(kinds, str) else kinds), first
    for key in ("rank", "step"):
        assert key not in expect or first[key] == expect[key], first
    assert set(expect.get("parameters", ())) <= set(first["parameters"])
    assert first["evidence"].get("cause") == expect.get("cause"), first
    if "line" in expect:
        main = FAILING[name].main_site()
        assert any(main.role in ("", s["role"]) and s["line"] in main.lines for s in first["sites"]), first
