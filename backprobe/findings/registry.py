"""The questions that are asked: one or several in each file of this folder, and those of plugins.

Nobody lists them. A file is imported because it is there; what ``question`` decorates in it is asked.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ..plugins import failure, load
from ..records import Unseen
from .questions import SPOILED, Kind, Question, Topic

#: The entry points of plugins that ask.
GROUP = "backprobe.findings"


@dataclass(frozen=True)
class Registry:
    """Questions, and what follows from what they state.

    :ivar order: kind -> its place among findings of one severity.
    :ivar in_call: kind -> kinds that silence it in the same backward call; ``in_run``: anywhere.
    :ivar failed: plugins that could not be taken in.
    """

    questions: tuple[Question[Any], ...]
    order: Mapping[str, int]
    in_call: Mapping[str, frozenset[str]]
    in_run: Mapping[str, frozenset[str]]
    failed: tuple[Unseen, ...] = ()

    @property
    def kinds(self) -> list[Kind]:
        """By their order."""
        return sorted((k for q in self.questions for k in q.kinds), key=lambda k: self.order[k.name])

    @property
    def topics(self) -> list[Topic]:
        """What can be asked for, each once."""
        ranked = sorted((q for q in self.questions if q.topic), key=lambda q: min(self.order[k.name] for k in q.kinds))
        found: dict[str, Topic] = {}
        for question in ranked:
            assert question.topic is not None
            found.setdefault(question.topic.name, question.topic)
        return list(found.values())


@cache
def own_questions() -> Registry:
    """Our own questions, from the files of this folder."""
    package = __name__.rpartition(".")[0]
    names = sorted(found.name for found in pkgutil.iter_modules(importlib.import_module(package).__path__))
    questions: list[Question[Any]] = []
    for name in names:
        module = importlib.import_module(f"{package}.{name}")
        made = (value for value in vars(module).values() if isinstance(value, Question))
        questions += (question for question in made if question.answer.__module__ == module.__name__)
    return register(questions)


@cache
def all_questions() -> Registry:
    """Our own questions and those of plugins. A plugin that cannot be loaded, or whose kinds are taken, is left out."""
    known = own_questions()
    loaded, failed = load(GROUP)
    left_out = list(failed)
    for name, value in loaded:
        try:
            if not isinstance(value, Question):
                raise TypeError(
                    f"it is a {type(value).__name__}, not a question: decorate it with backprobe.findings.question"
                )
            known = register([*known.questions, replace(value, plugin=name)])
        except Exception as error:
            left_out.append(failure(name, GROUP, error))
    return replace(known, failed=tuple(left_out))


def register(questions: Sequence[Question[Any]]) -> Registry:
    """`questions` as a registry.

    :raises ValueError: a kind or a rank is stated twice, a question states no kind, or one names a kind that there is
        not.
    """
    for question in questions:
        if not question.kinds and not question.also:
            raise ValueError(f"{question.name} states no kind")
    order = _order([kind for question in questions for kind in question.kinds])
    each = {kind.name: question.each_call for question in questions for kind in question.kinds}
    in_call: dict[str, set[str]] = {}
    in_run: dict[str, set[str]] = {}
    for question in questions:
        mine = [kind.name for kind in question.kinds]
        causes = [name for name in question.silenced_by if name != SPOILED]
        _known(question, order, (*question.silences, *causes, *question.also))
        pairs = [*((name, k) for name in mine for k in question.silences), *((k, n) for n in mine for k in causes)]
        for cause, effect in pairs:
            (in_call if each[cause] and each[effect] else in_run).setdefault(effect, set()).add(cause)
    return Registry(tuple(questions), order, _frozen(in_call), _frozen(in_run))


def _known(question: Question[Any], order: Mapping[str, int], names: Iterable[str]) -> None:
    for name in names:
        if name not in order:
            raise ValueError(f"{question.name} names {name}, which is no kind")


def _frozen(found: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {effect: frozenset(causes) for effect, causes in found.items()}


def _order(kinds: Sequence[Kind]) -> dict[str, int]:
    """Kind -> place: by rank; those that come after another follow it, by name where there are several."""
    names: set[str] = set()
    ranks: dict[int, str] = {}
    keys: dict[str, tuple[Any, ...]] = {}
    for kind in kinds:
        if kind.name in names:
            raise ValueError(f"the kind {kind.name} is stated twice")
        names.add(kind.name)
        if kind.rank is not None:
            other = ranks.setdefault(kind.rank, kind.name)
            if other != kind.name:
                raise ValueError(f"{kind.name} has the rank {kind.rank} of {other}")
            keys[kind.name] = (kind.rank,)
    rest = [kind for kind in kinds if kind.after is not None]
    while rest:
        ready = [kind for kind in rest if kind.after in keys]
        if not ready:
            raise ValueError(f"{rest[0].name} comes after {rest[0].after}, which has no place")
        for kind in ready:
            keys[kind.name] = (*keys[str(kind.after)], kind.name)
        rest = [kind for kind in rest if kind.name not in keys]
    return {name: place for place, name in enumerate(sorted(keys, key=lambda name: keys[name]))}
