"""Methods that return an array which their object overwrites, and lines that store transitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from backprobe.source.overwritten import appended_transitions, returned_and_overwritten

BY_ELEMENTS = """
class Lift:
    def fill(self):
        self.view[:] = 0.0
        return self.view  # returned

    def step(self, action):
        self.moves += 1
        return self.fill(), self.moves
"""
IN_A_TUPLE = """
class Tank:
    def step(self, action):
        self.levels.clamp_(0.0, 1.0)
        return self.levels, 0.0, False, {}  # returned
"""
A_COPY = """
class Tank:
    def step(self, action):
        self.levels[action] += 0.2
        return self.levels.copy(), self.done
"""
MADE_ANEW = """
class Cart:
    def step(self, action):
        self.state = np.array([self.x, self.v])
        return self.state
"""


@pytest.mark.parametrize("source", [BY_ELEMENTS, IN_A_TUPLE, A_COPY, MADE_ANEW])
def test_methods_that_return_an_array_they_overwrite(source: str, tmp_path: Path) -> None:
    file = tmp_path / "simulator.py"
    file.write_text(source)
    lines = [n for n, text in enumerate(source.splitlines(), 1) if text.endswith("# returned")]
    assert [site.line for site in returned_and_overwritten([str(file)])] == lines


def test_lines_that_store_transitions(tmp_path: Path) -> None:
    file = tmp_path / "memory.py"
    file.write_text("memory.append((obs, action, reward, nxt))\nlosses.append(loss)\npoints.append((x, y))\n")
    assert [site.line for site in appended_transitions([str(file)])] == [1]
