"""Evaluates every rule on a run, drops findings that follow from others, and sorts by importance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..plugins import CONTAINED, failure
from ..records import Finding, Unseen
from .registry import GROUP, Registry, all_rules
from .rules import GRADIENTS_INVALID, SEVERITIES, Rule
from .several_processes import in_time, merged, of_children, of_rank

if TYPE_CHECKING:
    from ..traces import Trace

NONFINITE = ("nonfinite-forward", "nonfinite-backward")


def explain(trace: Trace, known: Registry | None = None) -> tuple[list[Finding], list[Unseen]]:
    """Evaluate all rules on a run; return its findings, the most important first, and the rules that raised an error.

    Rules whose findings make gradients invalid run first; if there is any error, rules that rely on gradients are
    skipped. Findings that others imply are dropped, and those with one cause are merged.

    :param known: the rules to evaluate; all rules by default.
    """
    known = known or all_rules()
    asked = _Asked(known.failed)
    rules = [q for q in known.rules if q.topic is None or q.topic.name in trace.facts.asked]
    found = _of_calls(trace, known, asked, [q for q in rules if q.each_call])
    for rule in rules:
        if rule.invalidates_gradients and not rule.each_call:
            found += asked.ask(rule, trace)
    found += of_children(trace)
    spoiled = any(f.severity == "error" for f in found)
    for rule in rules:
        if (
            not rule.invalidates_gradients
            and not rule.each_call
            and not (spoiled and GRADIENTS_INVALID in rule.silenced_by)
        ):
            found += asked.ask(rule, trace)
    found = of_rank(trace, _unsilenced(found, known.in_run))
    same: dict[tuple[object, ...], list[Finding]] = {}
    for finding in found:
        same.setdefault(_key(finding), []).append(finding)
    last = len(known.order)  # of another process, with a plugin that is not here
    unique = sorted(
        map(merged, same.values()), key=lambda f: (SEVERITIES.index(f.severity), known.order.get(f.kind, last))
    )
    return causes_first(symptoms_after_reasons(in_time(unique), known), known), list(asked.failed.values())


def symptoms_after_reasons(found: Sequence[Finding], known: Registry) -> list[Finding]:
    """Return `found` with each symptom that began during the run moved behind its likely reasons.

    A reason is a finding of a kind in ``known.reasons`` with the same severity and rank that began in an earlier step.
    """
    ordered = [*found]
    for late in [one for one in found if one.kind in known.symptoms and one.step]:
        at = ordered.index(late)
        last = max((i for i, one in enumerate(ordered) if i > at and _comes_before(one, late, known)), default=at)
        ordered.insert(last, ordered.pop(at))
    return ordered


def _comes_before(reason: Finding, late: Finding, known: Registry) -> bool:
    """Return whether `reason` explains the symptom `late`: not just possible, as important, and begun in an earlier
    step.
    """
    if reason.kind not in known.reasons or reason.confidence == "possible":
        return False
    same = (reason.severity, reason.rank) == (late.severity, late.rank)
    return same and late.step is not None and (reason.step or 0) < late.step


def causes_first(found: Sequence[Finding], known: Registry) -> list[Finding]:
    """Return `found` with certain causes of a divergence before the non-finite values that it probably ended in.

    The causes become errors, as the values are.
    """
    values = next((i for i, one in enumerate(found) if one.kind in NONFINITE), len(found))
    if values == len(found) or _is_origin(found[values]):
        return [*found]
    ended = found[values].step
    causes = [
        one
        for one in found[values + 1 :]
        if one.kind in known.diverging and one.confidence == "certain" and one.rank == found[values].rank
        if one.step is not None and ended is not None and one.step <= ended
    ]
    rest = [one for one in found[values:] if not any(one is cause for cause in causes)]
    return [*found[:values], *(replace(one, severity="error") for one in causes), *rest]


def _is_origin(values: Finding) -> bool:
    """Return whether it is certain that the operation in the finding made the first NaN or Inf from a finite input.

    It is not if values had merely become too large, or the NaN was held by a tensor before.
    """
    evidence = values.evidence
    return values.confidence == "certain" and not (evidence.get("too_large") or evidence.get("held"))


def _of_calls(trace: Trace, known: Registry, asked: _Asked, rules: list[Rule[object]]) -> list[Finding]:
    """Evaluate the rules that look at one backward call each; drop findings that others of the same call imply."""
    found: list[Finding] = []
    for call in trace.backwards:
        mine = [finding for rule in rules for finding in asked.ask(rule, call, trace.facts)]
        found += _unsilenced(mine, known.in_call)
    return found


def _unsilenced(found: list[Finding], silencers: Mapping[str, frozenset[str]]) -> list[Finding]:
    """Return `found` without findings of kinds that another kind among them silences.

    :param silencers: for each kind, the kinds that silence it.
    """
    there = {finding.kind for finding in found}
    return [finding for finding in found if not there & silencers.get(finding.kind, frozenset())]


def _key(finding: Finding) -> tuple[object, ...]:
    """Return the key that findings of one cause share: kind, module, first site and parameters."""
    return finding.kind, finding.module, finding.sites[0].site if finding.sites else None, finding.parameters


class _Asked:
    """Calls rules and keeps the errors that they raise, so that one broken rule does not stop the others."""

    def __init__(self, failed: Iterable[Unseen]) -> None:
        self.failed: dict[object, Unseen] = dict(enumerate(failed))

    def ask(self, rule: Rule[object], *given: object) -> list[Finding]:
        """Call a rule and return its findings; if it raises, return none and note the failure once.

        Findings of a plugin's rule are checked first.
        """
        try:
            found = list(rule(*given))
            if rule.plugin:
                for finding in found:
                    _check(finding, rule)
            return found
        except CONTAINED as error:
            self.failed.setdefault((rule.plugin, rule.name), _failure(rule, error))
            return []


def _failure(rule: Rule[object], error: BaseException) -> Unseen:
    """Return the record of a rule that raised `error`, as the report shows it; a plugin's rule is named by
    its plugin.
    """
    if rule.plugin:
        return failure(rule.plugin, GROUP, error)
    return Unseen("internal error", 1, f"the rule {rule.name} failed: {type(error).__name__}: {error}")


def _check(finding: Finding, rule: Rule[object]) -> None:
    """Check that a plugin's finding can be ranked, shown and stored as built-in findings are.

    :raises TypeError, ValueError: if it cannot.
    """
    if not isinstance(finding, Finding):
        raise TypeError(f"it gave a {type(finding).__name__}, not a Finding")
    if finding.kind not in [*(kind.name for kind in rule.kinds), *rule.also]:
        raise ValueError(f"it gave a finding of kind {finding.kind!r}, which it does not state")
    if finding.severity not in SEVERITIES:
        raise ValueError(f"the severity {finding.severity!r} is not one of {', '.join(SEVERITIES)}")
    texts = [finding.title, finding.confidence, finding.advice, *finding.parameters]
    texts += [text for text in (finding.module, finding.node, finding.tensor) if text is not None]
    if not all(isinstance(text, str) for text in texts) or not isinstance(finding.step or 0, int):
        raise TypeError("its texts have to be of type str, its step an int or None")
    hash(_key(finding))
    json.dumps(finding.as_dict(), default=str)
