"""Derives findings from a trace: pure functions of records, one folder per rule. Never imports torch."""

from .engine import explain
from .registry import all_rules, own_rules
from .rules import GRADIENTS_INVALID, SEVERITIES, Kind, Question, Rule, Topic, rule

__all__ = [
    "GRADIENTS_INVALID",
    "SEVERITIES",
    "Kind",
    "Question",
    "Rule",
    "Topic",
    "all_rules",
    "explain",
    "own_rules",
    "rule",
]
