"""Derives findings from a trace: pure functions of records, one file per rule. Never imports torch."""

from .engine import explain
from .registry import all_rules, own_rules
from .rules import GRADIENTS_INVALID, SEVERITIES, Kind, Rule, Topic, rule

__all__ = [
    "GRADIENTS_INVALID",
    "SEVERITIES",
    "Kind",
    "Rule",
    "Topic",
    "all_rules",
    "explain",
    "own_rules",
    "rule",
]
