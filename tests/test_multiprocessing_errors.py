"""Errors raised in a multiprocessing child, also on Python versions that do not report them when the child ends."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import pytest

from backprobe.observe.processes.termination import raised_in


class Bootstrapped:
    """Ends as ``multiprocessing`` ends a process."""

    def __init__(self, error: BaseException | None) -> None:
        self.error, self.ran = error, 0

    def run(self) -> None:
        self.ran += 1
        if self.error is not None:
            raise self.error

    def ends(self) -> None:
        try:
            self.run()
        except SystemExit:
            pass
        except BaseException:
            traceback.print_exc()


@pytest.fixture(autouse=True)
def printing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)


def test_an_error_is_recorded_and_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    Bootstrapped(ValueError("bad batch")).ends()
    alone = capsys.readouterr().err
    shown, process = traceback.print_exc, Bootstrapped(ValueError("bad batch"))
    raised = raised_in(process)
    assert raised() is None and traceback.print_exc is not shown
    process.ends()
    assert capsys.readouterr().err == alone != ""
    assert raised() is process.error and process.ran == 1
    assert traceback.print_exc is shown


def test_errors_that_the_script_prints_itself_are_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    process: Any = Bootstrapped(SystemExit(3))
    raised = raised_in(process)
    process.ends()
    error = raised()
    assert isinstance(error, SystemExit) and error.code == 3
    try:
        raise KeyError("own")
    except KeyError:
        before = sys.exc_info()[1].__traceback__  # type: ignore[union-attr]
        traceback.print_exc()
        assert sys.exc_info()[1].__traceback__ is before  # type: ignore[union-attr]
    assert "KeyError: 'own'" in capsys.readouterr().err


def test_nothing_is_raised() -> None:
    process = Bootstrapped(None)
    raised = raised_in(process)
    process.ends()
    assert raised() is None and process.ran == 1
