"""Scripts after public reports (``corpus``): the first finding is the mistake.

A script in ``MISSED`` is an expected failure, with the reason. A change that makes it right removes it from the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from corpora import SETS_WITH_OWN_TEST, Script, load_corpus, selected_names
from forked import found_in

REPORTS = {name: one for name, one in load_corpus().items() if one.expect["set"] not in SETS_WITH_OWN_TEST}

CHECKS = {"wrong-backward": "functions", "wrong-double-backward": "functions", "first-divergence": "divergence"}

MISSED = {
    "pendulum_actor": "nothing is found: the critic steps with the actor's gradients, as one model of several losses",
    "control_tokens_gpt2": "nothing is found: the hook is on a weight that is replaced later",
    "forces_by_vmap_grad": "values inside vmap are not inspected",
    "wrist_windows": "nothing is found: the embeddings do not collapse to one point",
    "tower_tuned_in_second_stage": "none-grad is found, at the same line and with the same cause",
    "bert_fgm": "weight-overwritten names the line that changes the weight, not that of the backup",
    "flexible_head": "the line of the optimizer is named, not that of the layer that is made later",
    "reverb_gan": "nothing is found: the term has a graph, to parameters of the other optimizer only",
    "scan_segmenter": "nothing names a loss that is not divided; the units that die of it are found",
    "sine_maml": "parameters without a gradient are found; the update through .data is not named",
    "sine_meta": "parameters without a gradient are found; the update through .data is not named",
    "tide_model": "schedule-not-resumed is found, as info, at the line of the scheduler and not of the checkpoint",
}
#: Scripts that are hit in some runs.
UNSTABLE = {
    "average_and_rollback": "a write of NaN to weights is found if the step before it was recorded",
    "ddp_barrier_for_one": "ranks wait in different operations, and either is named as the one that waits",
    "ddp_metric_only_where_data": "it depends on which rank ends first",
    "ddp_other_rank_is_bad": "it depends on which rank ends first",
    "thread_attention": "the masked row is named if the step with it, or the one before, was recorded",
    "ddp_uneven_loaders": "it depends on which rank ends first",
}


def is_right(script: Script, finding: dict[str, Any]) -> bool:
    """Whether `finding` has the kind of the script's mistake, and its line or its parameters."""
    expect, main = script.expect, script.main_site()
    if finding["kind"] != main.kind:
        return False
    if main.lines is None:
        named = set(expect.get("parameters", ())) <= set(finding["parameters"])
        return named and (main.kind != "first-divergence" or finding["module"] == expect["module"])
    return any(
        site["role"] == main.role and Path(site["file"]).name == script.path.name and site["line"] in main.lines
        for site in finding["sites"]
    )


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """Name -> exit code, findings, and the report."""
    scripts = {}
    for name in sorted(selected_names(request, "test_a_report_is_explained_by_the_first_finding")):
        expect = REPORTS[name].expect
        topic = expect.get("check", CHECKS.get(expect["kind"]))
        scripts[name] = (str(REPORTS[name].path), ["--check", topic] if topic else [])
    return found_in(tmp_path_factory.mktemp("reports"), scripts)


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_explained_by_the_first_finding(name: str, runs) -> None:
    script = REPORTS[name]
    if "import GPT2" in script.text or "import Bert" in script.text:
        pytest.importorskip("transformers")
    _, findings, report = runs(name)
    assert "internal error" not in report
    if script.is_healthy:
        hit = all(finding["severity"] == "info" for finding in findings)
    else:
        hit = bool(findings) and is_right(script, findings[0])
    if not hit and name in MISSED | UNSTABLE:
        pytest.xfail((MISSED | UNSTABLE)[name])
    assert hit, f"expected {script.expect}\n{report}"
    assert name not in MISSED, f"take {name} off the list\n{report}"
    if "module" in script.expect and name not in UNSTABLE:
        assert findings[0]["module"] == script.expect["module"], report
