"""Discovers rules: those in the folders of this folder, and those of plugins.

There is no list: the file ``rule.py`` of every folder here is imported, and every function that ``rule`` decorates in
it is registered.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ..plugins import failure, load
from ..records import Unseen
from .rules import GRADIENTS_INVALID, Kind, Question, Rule, Topic

#: The entry point group of plugins with rules.
GROUP = "backprobe.findings"


@dataclass(frozen=True)
class Registry:
    """The registered rules, and the order and precedence that their declarations imply.

    :ivar order: kind -> its position among findings of one severity.
    :ivar in_call: kind -> kinds that silence it in the same backward call; ``in_run``: anywhere.
    :ivar failed: plugins that could not be registered.
    """

    rules: tuple[Rule[Any], ...]
    order: Mapping[str, int]
    in_call: Mapping[str, frozenset[str]]
    in_run: Mapping[str, frozenset[str]]
    failed: tuple[Unseen, ...] = ()

    @property
    def kinds(self) -> list[Kind]:
        """All kinds of findings of the registered rules, in the order in which findings are listed."""
        return sorted((k for q in self.rules for k in q.kinds), key=lambda k: self.order[k.name])

    @property
    def diverging(self) -> frozenset[str]:
        """The kinds with which training can diverge."""
        return frozenset(kind.name for rule in self.rules for kind in rule.kinds if kind.diverges)

    @property
    def symptoms(self) -> frozenset[str]:
        """The kinds that say what happens and not why."""
        return frozenset(kind.name for rule in self.rules for kind in rule.kinds if kind.is_symptom)

    @property
    def reasons(self) -> frozenset[str]:
        """The kinds that say why a model does not learn, or learns badly."""
        answers = {Question.NOT_LEARNING, Question.LEARNS_BADLY}
        kinds = (kind for rule in self.rules for kind in rule.kinds)
        return frozenset(kind.name for kind in kinds if answers.intersection(kind.questions) and not kind.is_symptom)

    @property
    def topics(self) -> list[Topic]:
        """The opt-in checks, each once."""
        ranked = sorted((q for q in self.rules if q.topic), key=lambda q: min(self.order[k.name] for k in q.kinds))
        found: dict[str, Topic] = {}
        for rule in ranked:
            assert rule.topic is not None
            found.setdefault(rule.topic.name, rule.topic)
        return list(found.values())


@cache
def own_rules() -> Registry:
    """Return the built-in rules, from the folders of this folder."""
    package = importlib.import_module(__name__.rpartition(".")[0])
    rules: list[Rule[Any]] = []
    for name in sorted(found.name for found in pkgutil.iter_modules(package.__path__) if found.ispkg):
        if importlib.util.find_spec(f"{package.__name__}.{name}.rule") is None:
            continue
        module = importlib.import_module(f"{package.__name__}.{name}.rule")
        made = (value for value in vars(module).values() if isinstance(value, Rule))
        rules += (rule for rule in made if rule.answer.__module__ == module.__name__)
    return register(rules)


@cache
def all_rules() -> Registry:
    """Return the built-in rules and those of plugins.

    Plugins that fail to load, or whose kinds exist already, are listed in ``Registry.failed``.
    """
    known = own_rules()
    loaded, failed = load(GROUP)
    left_out = list(failed)
    for name, value in loaded:
        try:
            if not isinstance(value, Rule):
                raise TypeError(f"it is a {type(value).__name__}, not a rule: decorate it with backprobe.findings.rule")
            known = register([*known.rules, replace(value, plugin=name)])
        except Exception as error:
            left_out.append(failure(name, GROUP, error))
    return replace(known, failed=tuple(left_out))


def register(rules: Sequence[Rule[object]]) -> Registry:
    """Build a registry of `rules`: the order of their kinds, and which kinds silence which.

    :raises ValueError: two rules declare the same kind or rank, a rule declares no kind, or one names an unknown kind.
    """
    for rule in rules:
        if not rule.kinds and not rule.also:
            raise ValueError(f"{rule.name} states no kind")
    order = _order([kind for rule in rules for kind in rule.kinds])
    each = {kind.name: rule.each_call for rule in rules for kind in rule.kinds}
    in_call: dict[str, set[str]] = {}
    in_run: dict[str, set[str]] = {}
    for rule in rules:
        mine = [kind.name for kind in rule.kinds]
        causes = [name for name in rule.silenced_by if name != GRADIENTS_INVALID]
        _known(rule, order, (*rule.silences, *causes, *rule.also))
        pairs = [*((name, k) for name in mine for k in rule.silences), *((k, n) for n in mine for k in causes)]
        for cause, effect in pairs:
            (in_call if each[cause] and each[effect] else in_run).setdefault(effect, set()).add(cause)
    return Registry(tuple(rules), order, _frozen(in_call), _frozen(in_run))


def _known(rule: Rule[object], order: Mapping[str, int], names: Iterable[str]) -> None:
    """Check that all kinds which a rule names are declared by some rule.

    :raises ValueError: one is not.
    """
    for name in names:
        if name not in order:
            raise ValueError(f"{rule.name} names {name}, which is no kind")


def _frozen(found: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    """Return the mapping with its sets made immutable."""
    return {effect: frozenset(causes) for effect, causes in found.items()}


def _order(kinds: Sequence[Kind]) -> dict[str, int]:
    """Return the position of each kind: by rank; kinds declared to come after another follow it, by name if several do.

    :raises ValueError: a kind is declared twice, two kinds have one rank, or a kind comes after an unknown one.
    """
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
