"""Registration of findings, the effects of their declarations, and the order in which they are reported."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from handmade import at, bad_root, call, kinds, leaf, only, run, traced
from hypothesis import given
from hypothesis import strategies as st

from backprobe import Trace
from backprobe.findings import GRADIENTS_INVALID, SEVERITIES, Kind, Topic, explain, own_rules, rule
from backprobe.findings.levels.alarms import ALARMS
from backprobe.findings.registry import register
from backprobe.records import BackwardCall, Facts, Finding, FindingSite, RankSeen, Retained

FOLDER = Path(__file__).parents[1] / "backprobe" / "findings"
STEP = call(run("SumBackward0", 1, op="sum"), leaf("weight"))


def fires(file: Path) -> list[str]:
    """Return the kinds that the tests of a rule show on records."""
    assigned = {node.targets[0].id: node.value for node in ast.parse(file.read_text()).body if type(node) is ast.Assign}
    return [key.value for key in assigned["FIRES"].keys]


def test_every_kind_has_its_page_and_a_test_on_records_beside_its_rule() -> None:
    folders: dict[str, list[str]] = {}
    for one in own_rules().rules:
        folders.setdefault(one.answer.__module__.split(".")[-2], []).extend(kind.name for kind in one.kinds)
    for folder, named in folders.items():
        assert sorted(fires(FOLDER / folder / "test_rule.py")) == sorted(named)
        assert sorted(path.stem for path in (FOLDER / folder).glob("*.md")) == sorted(named)


def test_findings_are_tested_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import pytest; sys.exit(pytest.main(['-q', *sys.argv[1:]]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "-p", "no:cacheprovider", str(FOLDER)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_a_folder_is_enough_for_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_steps").mkdir()
    (tmp_path / "slow_steps" / "__init__.py").touch()
    (tmp_path / "slow_steps" / "rule.py").write_text(
        "from backprobe.findings.rules import MEANT, Kind, rule\n"
        "from backprobe.records import Finding\n"
        "\n"
        "@rule(Kind('slow-step', 'info', 'a step took long', rank=MEANT + 50))\n"
        "def slow_steps(trace):\n"
        "    return [Finding('slow-step', 'info', 'slow', 'certain') for s in trace.steps if s.seconds > 60]\n"
    )
    findings = importlib.import_module("backprobe.findings")
    monkeypatch.setattr(findings, "__path__", [*findings.__path__, str(tmp_path)])
    known = own_rules.__wrapped__()
    assert [k.name for k in known.kinds][-1] == "slow-step"
    slow = traced(STEP)
    slow.steps = [dataclasses.replace(s, record=dataclasses.replace(s.record, seconds=99.0)) for s in slow.steps]
    assert [f.kind for f in explain(slow, known)[0]] == ["slow-step"]
    assert [f.kind for f in explain(traced(STEP), known)[0]] == []
    monkeypatch.undo()
    sys.modules.pop("backprobe.findings.slow_steps")


# What rules state


def plain(name: str, severity: str = "info", rank: int | None = None, **more):
    """A rule that gives one finding of its kind, named after its title."""

    @rule(Kind(name, severity, name, rank=ord(name) if rank is None else rank), **more)
    def answer(*_: object) -> list[Finding]:
        return [Finding(name, severity, name, "certain")]

    return answer


def said(*rules, trace: Trace | None = None) -> list[str]:
    found, failed = explain(trace or traced(STEP), register(rules))
    assert failed == []
    return [finding.kind for finding in found]


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([rule()(list)], "list states no kind"),
        ([plain("a"), plain("a", rank=2)], "the kind a is stated twice"),
        ([plain("a", rank=1), plain("b", rank=1)], "b has the rank 1 of a"),
        ([plain("a", silences=("b",))], "answer names b, which is no kind"),
        ([plain("a", silenced_by=("b",))], "answer names b, which is no kind"),
        ([plain("a", also=("b",))], "answer names b, which is no kind"),
        ([rule(Kind("a", "info", "", after="b"))(list)], "a comes after b, which has no place"),
        (
            [rule(Kind("a", "info", "", after="b"), Kind("b", "info", "", after="a"))(list)],
            "a comes after b, which has no place",
        ),
    ],
)
def test_invalid_declarations_raise(rules: list, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        register(rules)


def test_a_rule_may_give_findings_of_a_kind_that_another_declares() -> None:
    other = rule(also=("a",))(lambda trace: [Finding("a", "info", "elsewhere", "certain")])
    assert said(plain("a"), other) == ["a"]  # one finding: both are of no module and line
    with pytest.raises(ValueError, match="states no kind"):
        register([plain("a"), rule()(list)])


def test_a_kind_declares_a_severity_and_one_position() -> None:
    with pytest.raises(ValueError, match="the severity 'bad' is not one of error, warning, info"):
        Kind("a", "bad", "", rank=1)
    for places in ({}, {"rank": 1, "after": "b"}):
        with pytest.raises(ValueError, match="a: give rank or after"):
            Kind("a", "info", "", **places)


def test_kinds_that_come_after_another_follow_it() -> None:
    after = [rule(Kind(name, "info", "", after=before))(list) for name, before in (("d", "b"), ("c", "b"), ("e", "c"))]
    known = register([plain("a", rank=1), plain("z", rank=3), plain("b", rank=2), *after])
    assert [kind.name for kind in known.kinds] == ["a", "b", "c", "e", "d", "z"]


def test_topics_run_on_request() -> None:
    topic = Topic("looks", "what it looks for")
    rules = [plain("a", topic=topic, rank=2), plain("b", topic=topic, rank=1), plain("c", rank=3)]
    assert said(*rules) == ["c"]
    assert said(*rules, trace=traced(STEP, ask="looks")) == ["b", "a", "c"]
    assert register(rules).topics == [topic]


def test_a_rule_can_suppress_and_be_suppressed() -> None:
    a, b = plain("a"), plain("b")
    assert said(b, a) == ["a", "b"]
    assert said(plain("a", silences=("b",)), b) == said(a, plain("b", silenced_by=("a",))) == ["a"]
    # An error found in another process invalidates gradients too.
    dependent = plain("c", silenced_by=(GRADIENTS_INVALID,))
    assert said(dependent) == ["c"]
    assert said(plain("a", "error", invalidates_gradients=True), dependent) == ["a"]
    assert said(plain("a", "warning", invalidates_gradients=True), dependent) == ["a", "c"]
    assert said(plain("a", "error"), dependent) == ["a", "c"]
    child = RankSeen(1, 2, findings=(Finding("x", "error", "x", "certain"),))
    assert said(dependent, trace=traced(STEP, seen=[child])) == ["x"]


def test_rules_of_each_call_suppress_within_the_call() -> None:
    def each(name: str, rank: int, only_call: int, **more):
        @rule(Kind(name, "info", name, rank=rank), each_call=True, **more)
        def answer(call: BackwardCall, facts: Facts) -> list[Finding]:
            where = (FindingSite("cause", at(call.index)),)
            return [Finding(name, "info", name, "certain", sites=where)] if call.index >= only_call else []

        return answer

    trace = traced(STEP, dataclasses.replace(STEP, index=1, step=1))
    found, _ = explain(trace, register([each("a", 1, 1, silences=("b",)), each("b", 2, 0)]))
    assert [(f.kind, f.sites[0].site.line) for f in found] == [("a", 1), ("b", 0)]
    # A rule of the whole run silences all calls.
    assert said(plain("c", silences=("b",)), each("b", 2, 0), trace=trace) == ["c"]


def test_a_rule_that_fails_is_reported_and_the_others_run() -> None:
    @rule(Kind("bad", "info", "", rank=1))
    def fails(trace: Trace) -> list[Finding]:
        raise IndexError("list index out of range")

    found, (unseen,) = explain(traced(STEP), register([fails, plain("a", rank=2)]))
    assert [f.kind for f in found] == ["a"]
    assert unseen.what == "internal error"
    assert unseen.note.endswith("fails failed: IndexError: list index out of range")


# The order of findings, and their deduplication

FINDINGS = st.builds(
    Finding,
    kind=st.sampled_from([kind.name for kind in own_rules().kinds]),
    severity=st.sampled_from(SEVERITIES),
    title=st.integers(0, 99).map(str),
    confidence=st.just("certain"),
    module=st.sampled_from([None, "a"]),
    sites=st.sampled_from(
        [(), (FindingSite("cause", at(1)),), (FindingSite("cause", at(2)), FindingSite("failed", at(1)))]
    ),
    parameters=st.sampled_from([(), ("weight",)]),
)


@given(st.lists(FINDINGS, max_size=12))
def test_the_most_important_first_and_each_once(given: list[Finding]) -> None:
    """Against the plain way: the first of those with kind, module, main line and parameters the same, sorted."""
    known = register([rule(*own_rules().kinds)(lambda trace: given)])
    found, _ = explain(traced(STEP), known)
    first: dict[object, Finding] = {}
    for one in given:
        first.setdefault((one.kind, one.module, one.sites[:1], one.parameters), one)
    names = [kind.name for kind in own_rules().kinds]
    assert found == sorted(first.values(), key=lambda one: (SEVERITIES.index(one.severity), names.index(one.kind)))


def test_the_order_of_kinds() -> None:
    """From one process each, in the opposite order."""
    names = [kind.name for kind in own_rules().kinds]
    assert (names[0], names[-1]) == ("clipping-without-effect", "part-never-learns")
    by_others = "forward-error", "loss-term-without-graph", "update-rounds-away", "stale-gradient", "learning-rate-zero"
    silenced = ("backward-error", "rank-desync", *by_others, *ALARMS)  # by others that are given
    given = [Finding(name, "warning", "", "certain") for name in names if name not in silenced]
    ranks = [RankSeen(i, i, findings=(finding,)) for i, finding in enumerate(reversed(given))]
    assert kinds(traced(STEP, seen=ranks)) == [f.kind for f in given]


def test_of_the_same_kind_ours_comes_after_those_of_other_processes() -> None:
    """Exception: of findings that invalidate gradients, ours comes first."""
    child = Finding("graph-retained", "warning", "of a child", "certain")
    seen = [Retained("losses", "a list", at(70), "", 7), RankSeen(1, 2, findings=(child,))]
    found = traced(STEP, seen=seen).findings
    assert [f.rank for f in found] == [1, None]
    bad = dataclasses.replace(child, kind="nonfinite-forward", severity="error")
    calls = call(run("SumBackward0", 1, op="sum", line=13), leaf("weight"), roots=bad_root())
    assert [f.rank for f in traced(calls, seen=[RankSeen(1, 2, findings=(bad,))]).findings] == [None, 1]
    assert only(traced(calls)).rank is None
