"""Declares rules: the kinds that a function finds, their precedence, and the check that enables it.

The file ``rule.py`` of a folder here has one or more functions decorated with ``rule``. ``registry`` discovers them,
``engine`` runs them. Plugins declare rules in the same way (``docs/plugins.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, ParamSpec

from ..records import Finding, FindingSite, Site

P = ParamSpec("P")

#: From the worst down: the order of findings, before the ranks of their kinds.
SEVERITIES = ("error", "warning", "info")

# A rank is one of these constants plus a number below 100. Findings of one severity are listed in order of their ranks.
#: Non-finite values: most other findings of such a run are consequences.
VALUES = 100
#: A line of the script that made a backward raise or give a wrong gradient.
WRONG = 200
#: Two runs of the same computation differ.
DIFFERS = 300
#: A generic finding; ranked below more specific ones.
GENERAL = 400
#: Parameters that do not learn.
LEARNING = 500
#: Memory that is not freed.
MEMORY = 600
#: Hooks that do not run as intended, and state that changes.
HOOKS = 700
#: Often intended, or normal for this kind of model.
MEANT = 800

#: For ``silenced_by``: an error of a rule that ``invalidates_gradients``, or any error found in another process.
GRADIENTS_INVALID = "(gradients invalid)"


class Question(Enum):
    """A question of a user that kinds of findings answer: a section of docs/symptoms.md."""

    NONFINITE = "Where did the NaN or Inf come from?"
    RAISED = "Why did the backward raise?"
    NOT_LEARNING = "Why does a parameter not learn?"
    LEARNS_BADLY = "Why does the loss swing, or learn badly?"
    FADES_OR_GROWS = "Why do gradients fade or blow up?"
    SILENTLY_WRONG = "Is a gradient silently wrong?"
    RANKS = "Which rank hangs, fails, or drifts away?"
    MEMORY = "Why does memory grow?"
    HOOKS = "Why does a hook not run, or not work?"
    COMPILED = "Why does `torch.compile` recompile, and is its result right?"
    PRECISION = "Where does a run lose precision, and where do two models differ?"


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    :ivar name: the value of ``Finding.kind``, and the name of its page, ``NAME.md`` beside the rule.
    :ivar severity: the usual severity; a finding may state another.
    :ivar summary: one line of Markdown: what the finding reports.
    :ivar rank: its position among kinds of the same severity.
    :ivar after: instead of ``rank``: the kind that it follows directly.
    :ivar questions: the questions that it answers, in docs/symptoms.md.
    :ivar points_to: for that table, in a few words: the line or fact that the finding names.
    :ivar diverges: whether training with it can diverge: where values become non-finite in its first step or later, and
        not because an operation is undefined for its input, a certain finding of it comes before them.
    :ivar is_symptom: it says what happens and not why: if it begins late, findings of earlier steps that say why a
        model does not learn, or learns badly, come before it.
    :raises ValueError: ``severity`` is unknown, or not exactly one of ``rank`` and ``after`` is given.
    """

    name: str
    severity: str
    summary: str
    rank: int | None = None
    after: str | None = None
    questions: tuple[Question, ...] = ()
    points_to: str = ""
    diverges: bool = False
    is_symptom: bool = False

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"{self.name}: the severity {self.severity!r} is not one of {', '.join(SEVERITIES)}")
        if (self.rank is None) == (self.after is None):
            raise ValueError(f"{self.name}: give rank or after, one of the two")


@dataclass(frozen=True)
class Topic:
    """An opt-in check, enabled with ``--check NAME``.

    :ivar description: what the check looks for, in a few words for the help.
    :ivar whole_script: needs a whole run; ``backprobe.diagnose`` cannot run it on a single loss.
    """

    name: str
    description: str
    whole_script: bool = False


@dataclass(frozen=True)
class Rule(Generic[P]):
    """A function that returns findings, with what its decorator declared. Call it like the function.

    :ivar answer: the function. For the other fields see ``rule``.
    :ivar plugin: the entry point that provides it; empty for backprobe's own rules.
    """

    answer: Callable[P, list[Finding]]
    kinds: tuple[Kind, ...]
    topic: Topic | None = None
    each_call: bool = False
    invalidates_gradients: bool = False
    silences: tuple[str, ...] = ()
    silenced_by: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def name(self) -> str:
        return f"{self.answer.__module__}.{self.answer.__qualname__}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> list[Finding]:
        return self.answer(*args, **kwargs)


def rule(
    *kinds: Kind,
    topic: Topic | None = None,
    each_call: bool = False,
    invalidates_gradients: bool = False,
    silences: tuple[str, ...] = (),
    silenced_by: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> Callable[[Callable[P, list[Finding]]], Rule[P]]:
    """Register a function as a rule that runs on every trace.

    The function takes the ``Trace`` and returns findings of `kinds`, an empty list if there are none.

    :param topic: the opt-in check that enables the rule.
    :param each_call: run once for each backward call, with the ``BackwardCall`` and the run's ``Facts`` as arguments.
    :param invalidates_gradients: an error of this rule means that the gradients are not those of the intended program:
        rules that are ``silenced_by`` ``GRADIENTS_INVALID`` do not run.
    :param silences: kinds that are consequences of this rule's findings and are dropped: within the same backward call
        if both rules run for each call, otherwise in the whole run.
    :param silenced_by: the inverse: kinds of which this rule's findings are consequences, or ``GRADIENTS_INVALID``.
    :param also: kinds that another rule declares and that this rule reports too.
    """

    def made(answer: Callable[P, list[Finding]]) -> Rule[P]:
        """Return the function as a ``Rule`` with the declared settings."""
        return Rule(answer, kinds, topic, each_call, invalidates_gradients, silences, silenced_by, also)

    return made


def candidates(sites: Iterable[Site]) -> dict[str, list[str]]:
    """Return the evidence of a line that is one of several: the lines that it could be; empty if there are none."""
    lines = [f"{one.file}:{one.line}" for one in sites]
    return {"candidates": lines} if lines else {}


def sites_of(*pairs: tuple[str, Site | None]) -> tuple[FindingSite, ...]:
    """Return the sites of a finding: the pairs of role and site whose site is known."""
    return tuple(FindingSite(role, site) for role, site in pairs if site is not None)
