"""From a trace to findings: pure functions of records, one file a question. Never imports torch."""

from .explaining import explain
from .questions import SEVERITIES, SPOILED, Kind, Question, Topic, question
from .registry import all_questions, own_questions

__all__ = [
    "SEVERITIES",
    "SPOILED",
    "Kind",
    "Question",
    "Topic",
    "all_questions",
    "explain",
    "own_questions",
    "question",
]
