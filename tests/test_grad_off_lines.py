"""The lines that turn gradient mode off, and which of them evaluate a model."""

from __future__ import annotations

import torch

from backprobe.observe.forward.grad_off_lines import (
    MAX_LINES_OF_MODULE,
    MAX_MODULES_OF_LINE,
    GradModeCalls,
    GradOffLines,
)
from backprobe.records import Site


def at(line: int) -> Site:
    return Site("train.py", line, "f")


def called(lines: GradOffLines, module: GradModeCalls, line: int, from_outside: bool = False) -> None:
    lines.last = at(line)
    lines.note_call(module, from_outside)


def test_the_latest_line_stops_a_module() -> None:
    lines, part = GradOffLines(), GradModeCalls()
    assert lines.line_that_stops(part) is None
    for line in (3, 5, 3):
        called(lines, part, line)
    assert lines.line_that_stops(part) == at(3) and part.off == at(3)


def test_a_line_that_evaluates_a_trained_module_does_not_stop_its_part() -> None:
    lines, model, part = GradOffLines(), GradModeCalls(), GradModeCalls()
    called(lines, part, 5)
    called(lines, model, 9, from_outside=True)
    called(lines, part, 9)
    assert lines.line_that_stops(part) == at(9)
    model.calls += 1  # with gradient mode on
    assert lines.line_that_stops(part) == at(5)


def test_a_part_that_has_learned_is_stopped_by_its_last_line() -> None:
    lines, model, part = GradOffLines(), GradModeCalls(), GradModeCalls()
    model.calls = part.calls = 4
    called(lines, model, 9, from_outside=True)
    called(lines, part, 9)
    assert lines.line_that_stops(part) is None
    assert lines.line_that_stops(part, has_learned=True) == at(9)
    model.calls += 1  # since the first call under the line
    assert lines.line_that_stops(part, has_learned=True) == at(9)  # the latest, since no other line is known


def test_inference_mode_has_no_recorded_line() -> None:
    lines, part = GradOffLines(), GradModeCalls()
    with torch.inference_mode():
        called(lines, part, 5, from_outside=True)
    assert part.off == at(5) and lines.line_that_stops(part) is None


def test_lines_and_modules_are_bounded() -> None:
    lines, part = GradOffLines(), GradModeCalls()
    for line in range(1, 3 * MAX_LINES_OF_MODULE):
        called(lines, part, line)
    assert len(part.off_lines) == MAX_LINES_OF_MODULE
    late = GradModeCalls()
    for module in (*(GradModeCalls() for _ in range(MAX_MODULES_OF_LINE)), late):
        called(lines, module, 1, from_outside=True)
    late.calls += 1
    assert lines.line_that_stops(late) == at(1)  # this module is one too many
