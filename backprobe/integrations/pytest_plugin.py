"""The pytest plugin: tests fail if their backward passes have findings, or all of these are reported at the end.

It imports torch only if a test is watched.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..observe.live import LiveTrace
    from ..records import Finding
    from ..trace_api import Trace

#: What becomes of a finding: the test fails, or it is reported at the end.
FAIL, REPORT = "fail", "report"
#: The section of a test's report that holds its findings, as pytest names it.
_SECTION = "backprobe"
#: What ``fail_on`` may be, the most severe first.
SEVERITIES = ("error", "warning", "info")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_MARK = (
    "backprobe(fail_on='error', allow=(), max_saved=None, every_parameter_learns=False, checks=()): watch the test "
    "and fail it with what went wrong in its backward passes. fail_on: 'error', 'warning', 'info' or None; allow: "
    "kinds of findings that are no failure; max_saved: the most that autograd may keep for a backward, as '200 MB'; "
    "every_parameter_learns: each parameter that requires a gradient has to get one that is not zero"
)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The conditions that a test must satisfy.

    :ivar fail_on: the least severity of a finding that fails it; ``None``: none does.
    :ivar max_saved: bytes.
    """

    fail_on: str | None = "error"
    allow: tuple[str, ...] = ()
    max_saved: float | None = None
    every_parameter_learns: bool = False
    checks: tuple[str, ...] = ()


class Watch:
    """The recording of a test: the fixture ``backprobe``.

    ``trace`` is a ``backprobe.Trace`` of the test so far: reading it ends the recording.
    """

    def __init__(self, wanted: Wanted) -> None:
        from ..observe.live import LiveTrace
        from ..observe.schedule.settings import Settings

        self.wanted = wanted
        checks = {*wanted.checks, *(["memory"] if wanted.max_saved is not None else [])}
        self._live: LiveTrace = LiveTrace(None, "model", Settings("nodes", checks=frozenset(checks)))
        self._open = False

    def begin(self) -> None:
        """Start the recording; called just before the test function runs."""
        self._live.__enter__()
        self._open = True

    def end(self) -> None:
        """End the recording; has no effect the second time."""
        if self._open:
            self._open = False
            self._live.__exit__(None, None, None)

    @property
    def trace(self) -> Trace:
        """The recording of the test. Reading it ends the recording."""
        self.end()
        return self._live

    @property
    def findings(self) -> list[Finding]:
        """``trace.findings``."""
        return list(self.trace.findings)

    def complaints(self) -> list[str]:
        """Return why the test fails; empty if it satisfies its conditions."""
        trace, wanted = self.trace, self.wanted
        wrong = [] if wanted.fail_on is None else self._wrong(trace)
        found = [_findings_text(wrong, trace)]
        if wanted.fail_on is not None and (stopped := trace.coverage.observed.stopped) is not None:
            found.append(f"recording stopped at step {stopped.step}: {stopped.reason}")
        if wanted.max_saved is not None:
            found.append(_saved(trace, wanted.max_saved))
        if wanted.every_parameter_learns:
            found += _learning(trace, wrong)
        return [text for text in found if text]

    def _wrong(self, trace: Trace) -> list[Finding]:
        """Return the findings that fail the test.

        Errors that the test itself caught are expected: calls that raised are left out.
        """
        from ..trace_api import Trace

        assert self.wanted.fail_on is not None
        grave = SEVERITIES[: SEVERITIES.index(self.wanted.fail_on) + 1]
        found = trace.findings
        steps = list(trace.steps)
        if any(call.raised for step in steps for call in step.backwards):
            calm = [
                dataclasses.replace(step, backwards=[call for call in step.backwards if call.raised is None])
                for step in steps
            ]
            found = Trace(calm, trace.facts, trace.info).findings
        return [one for one in found if one.severity in grave and one.kind not in self.wanted.allow]


def _findings_text(findings: list[Finding], trace: Trace) -> str:
    """Format findings with the source lines that `trace` recorded; empty if there are none."""
    from ..view.cells import findings_text

    return findings_text(findings, trace.sources) if findings else ""


def _saved(trace: Trace, most: float) -> str:
    """Return a text if more bytes were saved for backward than `most`; otherwise empty."""
    from ..basics.text import size
    from ..records import SavedBytes

    kept = sum(one.bytes for one in trace.facts.of(SavedBytes) if not one.holder)
    return f"autograd kept {size(kept)} for a backward; max_saved is {size(most)}" if kept > most else ""


def _learning(trace: Trace, told: list[Finding]) -> list[str]:
    """Return texts about parameters that do not learn, with findings about them that are not in `told`; empty if all
    learn.
    """
    from ..basics.text import few

    wanted = [one for one in trace.parameters if one.requires_grad]
    if not wanted:
        return ["every_parameter_learns: no parameter that requires a gradient was seen"]
    lost = [one.name for one in wanted if not one.alive]
    if not lost:
        return []
    why = [one for one in trace.findings if not set(lost).isdisjoint(one.parameters) and one not in told]
    which = f"{few(lost, 8)} ({len(lost)} of {len(wanted)} parameters)"
    return [f"got no gradient that is not zero: {which}", _findings_text(why, trace)]


def read_bytes(text: str | float) -> float:
    """Parse ``"200 MB"``, ``"1.5 GiB"`` or a number of bytes.

    :raises ValueError: it is neither.
    """
    if isinstance(text, (int, float)):
        return float(text)
    match = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([KMG]?i?B)\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes; write it as '200 MB' or '1.5 GiB'")
    return float(match[1]) * _UNITS[match[2].upper()]


def wanted_of(arguments: Mapping[str, Any], default: Wanted) -> Wanted:
    """Return the conditions that a marker states.

    :raises ValueError: an argument is unknown or invalid.
    """
    names = [one.name for one in dataclasses.fields(Wanted)]
    for name in arguments:
        if name not in names:
            raise ValueError(f"unknown argument {name!r}; there are {', '.join(names)}")
    given = dict(arguments)
    if given.get("max_saved") is not None:
        given["max_saved"] = read_bytes(given["max_saved"])
    for name in ("allow", "checks"):
        if name in given:
            given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
    if given.get("fail_on", "error") not in (*SEVERITIES, None):
        raise ValueError(f"fail_on is {given['fail_on']!r}; it is one of {', '.join(map(repr, SEVERITIES))} and None")
    return dataclasses.replace(default, **given)


_WATCH: pytest.StashKey[Watch | None] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin; called by pytest."""
    group = parser.getgroup("backprobe", "backprobe: what went wrong in backward passes")
    group.addoption(
        "--backprobe",
        action="store_const",
        const=FAIL,
        default=None,
        help="watch every test, and fail it with what went wrong",
    )
    # An option that takes a value only after "=": "--backprobe test_model.py" names a file.
    group.addoption(
        "--backprobe=report",
        action="store_const",
        const=REPORT,
        dest="backprobe",
        help="watch every test, and report at the end what went wrong; no test fails for it",
    )
    group.addoption(
        "--backprobe-fail-on",
        choices=SEVERITIES,
        default="error",
        metavar="SEVERITY",
        help="the least severity of what fails a test, or is reported: error (default), warning or info",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``backprobe``; called by pytest."""
    config.addinivalue_line("markers", _MARK)


def _watch_of(item: pytest.Item) -> Watch | None:
    """Return the recording of `item`; ``None`` if it is not watched."""
    if _WATCH not in item.stash:
        marks = list(item.iter_markers("backprobe"))
        fixture = "backprobe" in getattr(item, "fixturenames", ())
        asked = bool(item.config.getoption("backprobe"))
        watch = None
        if isinstance(item, pytest.Function) and (marks or fixture or asked):
            fails = item.config.getoption("backprobe_fail_on") if asked or marks or not fixture else None
            wanted = Wanted(fails)
            for mark in reversed(marks):  # the nearest counts
                if mark.args:
                    raise pytest.UsageError(f"{item.nodeid}: the marker backprobe has arguments with names only")
                try:
                    wanted = wanted_of(mark.kwargs, wanted)
                except ValueError as error:
                    raise pytest.UsageError(f"{item.nodeid}: marker backprobe: {error}") from None
            watch = Watch(wanted)
        item.stash[_WATCH] = watch
    return item.stash[_WATCH]


@pytest.fixture
def backprobe(request: pytest.FixtureRequest) -> Watch:
    """The recording of this test: ``backprobe.trace``, ``backprobe.findings``. Reading them ends it."""
    watch = _watch_of(request.node)
    assert watch is not None
    return watch


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record a test that is watched, and fail it or add its findings to the report; called by pytest around
    the test.
    """
    watch = _watch_of(item)
    if watch is None:
        return (yield)
    watch.begin()
    try:
        result = yield
    except BaseException as error:
        from ..source.tracebacks import strip

        if text := _findings_text(watch.findings, watch.trace):
            item.add_report_section("call", _SECTION, text)
        strip(error)
        raise
    finally:
        watch.end()
        item.stash[_WATCH] = None
    if complaints := watch.complaints():
        if item.config.getoption("backprobe") != REPORT:
            pytest.fail("\n\n".join(["backprobe:", *complaints]), pytrace=False)
        item.add_report_section("call", _SECTION, "\n\n".join(complaints))
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the findings of tests that did not fail: pytest shows the sections of those that did."""
    if config.getoption("backprobe") != REPORT:
        return
    reports = [one for some in terminalreporter.stats.values() for one in some if isinstance(one, pytest.TestReport)]
    called = [one for one in reports if one.when == "call" and not one.failed]
    found = [(one.nodeid, text) for one in called for text in _texts(one)]
    terminalreporter.section("backprobe")
    for nodeid, text in found:
        terminalreporter.write_line(nodeid, bold=True)
        terminalreporter.write_line(f"{text}\n")
    if not found:
        terminalreporter.write_line("no findings in tests that passed")


def _texts(report: pytest.TestReport) -> list[str]:
    """Return the findings in the report of a test."""
    return [text for name, text in report.sections if name == f"Captured {_SECTION} call"]
