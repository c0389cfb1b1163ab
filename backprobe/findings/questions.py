"""How a finding registers itself: what a function that makes findings states of them.

A file of this folder has one or several, each decorated with ``question``; ``registry`` finds them, ``explaining`` asks
them. Packages of others have them too (``docs/plugins.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec

from ..records import Finding, FindingSite, Site

P = ParamSpec("P")

#: From the worst down: the order of findings, before the ranks of their kinds.
SEVERITIES = ("error", "warning", "info")

# A rank is one of these words, which says why a kind comes where it does, and a number below 100. Kinds of one severity
# are told in the order of their ranks.
#: Values that are not finite: most of what else is seen then is a consequence.
VALUES = 100
#: Why a backward raised or gave a wrong gradient: a line of the script.
WRONG = 200
#: Two runs of the same computation differ.
DIFFERS = 300
#: Says less than what stands above, where both are said.
GENERAL = 400
#: What does not learn.
LEARNING = 500
#: What stays in memory.
MEMORY = 600
#: Hooks that do not do their work, and state that changes.
HOOKS = 700
#: Often meant, or how such a model is.
MEANT = 800

#: For ``silenced_by``: an error of a question that ``spoils``, or one that was found in another process.
SPOILED = "(spoiled)"


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    :ivar name: what ``Finding.kind`` is, and its page in ``backprobe/findings/pages``.
    :ivar severity: what it is mostly; a finding itself says what it is.
    :ivar says: what it says, in a line of Markdown.
    :ivar rank: where it comes among others of its severity.
    :ivar after: in place of ``rank``: the kind that it comes right after.
    :raises ValueError: ``severity`` is none, or not exactly one of ``rank`` and ``after`` is given.
    """

    name: str
    severity: str
    says: str
    rank: int | None = None
    after: str | None = None

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"{self.name}: the severity {self.severity!r} is not one of {', '.join(SEVERITIES)}")
        if (self.rank is None) == (self.after is None):
            raise ValueError(f"{self.name}: give rank or after, one of the two")


@dataclass(frozen=True)
class Topic:
    """What is looked for only when it is asked for, with ``--check``.

    :ivar about: what is looked for, in a few words for the help.
    :ivar whole_script: cannot be asked of a single loss (``backprobe.diagnose``).
    """

    name: str
    about: str
    whole_script: bool = False


@dataclass(frozen=True)
class Question(Generic[P]):
    """What ``question`` makes of a function: that function, which can be called as before, and what was stated.

    :ivar plugin: the entry point that it came from; empty for ours.
    """

    answer: Callable[P, list[Finding]]
    kinds: tuple[Kind, ...]
    topic: Topic | None = None
    each_call: bool = False
    spoils: bool = False
    silences: tuple[str, ...] = ()
    silenced_by: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def name(self) -> str:
        return f"{self.answer.__module__}.{self.answer.__qualname__}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> list[Finding]:
        return self.answer(*args, **kwargs)


def question(
    *kinds: Kind,
    topic: Topic | None = None,
    each_call: bool = False,
    spoils: bool = False,
    silences: tuple[str, ...] = (),
    silenced_by: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> Callable[[Callable[P, list[Finding]]], Question[P]]:
    """Make a function that makes findings one that is asked of every run.

    The function is given the ``Trace`` and returns findings of `kinds`, none where there is nothing to say.

    :param topic: it is asked only where this was asked for.
    :param each_call: it is asked of each backward call instead, and given the ``BackwardCall`` and the run's ``Facts``.
    :param spoils: where it gives an error, the gradients are not those of the script as it was meant, and what is
        ``silenced_by`` ``SPOILED`` is not asked.
    :param silences: kinds that are a consequence of what it finds, and not said beside it: within the same backward
        call where both are asked of each call, in the whole run otherwise.
    :param silenced_by: the same from the other side: kinds of which this one is a consequence; ``SPOILED``.
    :param also: kinds that another question states, and that it finds elsewhere.
    """

    def made(answer: Callable[P, list[Finding]]) -> Question[P]:
        return Question(answer, kinds, topic, each_call, spoils, silences, silenced_by, also)

    return made


def sites_of(*pairs: tuple[str, Site | None]) -> tuple[FindingSite, ...]:
    """The sites of a finding: those of `pairs` that are known, by their role."""
    return tuple(FindingSite(role, site) for role, site in pairs if site is not None)
