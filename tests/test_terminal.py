"""Escaping of names, titles, source lines and error texts for terminals, logs and pages."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import backprobe
from backprobe import Trace
from backprobe.basics.terminal import console, say
from backprobe.basics.text import text_table, without_controls
from backprobe.commands import main
from backprobe.engine.prompt.command import COMMANDS
from backprobe.records import (
    BackwardCall,
    Facts,
    Finding,
    FindingSite,
    GradStat,
    ModuleCall,
    Node,
    NodeRun,
    Parameter,
    ParameterStat,
    RankSeen,
    Site,
    Step,
    Unseen,
)
from backprobe.store.writer import save
from backprobe.traces import TracedStep
from backprobe.tracking.alerts import Alert
from backprobe.view.github import workflow_commands
from backprobe.view.parts import FindingPlace, problem
from backprobe.view.terminal import linked, write

ROOT = Path(backprobe.__file__).parent
#: What a terminal obeys or what forges a line, one of a kind: colours, window titles, clipboard, links, C1, carriage
#: return, separators of lines, an override of direction, an isolate, a tag, a lone surrogate.
SIGNS = (
    *("\x1b[31m", "\x1b]0;t\x07", "\x1b]52;c;aGk=\x07", "\x1b]8;;http://x\x1b\\", "\x9b2J", "\x08", "\x00", "\x7f"),
    *("\r", "\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\u202e", "\u2066", "\u200f", "\U000e0041", "\ud800"),
)
EVIL = "a" + "b".join(SIGNS) + "[red]z[/red]</script><img src=x>:smile:"
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
#: Files that write by themselves, and why.
WRITERS = {
    "basics/terminal.py": "it is the one that the others write with",
    "observe/launch.py": "what Python itself writes of a script that ends",
}
#: Their calls write elsewhere than to a terminal.
NOT_WRITERS = {"engine/prompt/reading.py": "the prompt, a constant"}


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_no_file_writes_to_a_terminal_by_itself() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name in WRITERS or name.startswith("examples/"):
            continue
        for call in calls(ast.parse(path.read_text())):
            if call in ("print", "Console", "rich.print") or re.fullmatch(r"sys\.(__)?std(out|err)(__)?\.write", call):
                wrong.append(f"{name}: {call}")
    assert wrong == []


def test_signs_that_a_terminal_obeys_are_shown() -> None:
    assert (
        without_controls("a\x1b[31m\n\r\tb\x9b\u202e\ud800 \u00e9") == r"a\x1b[31m\n\r" + "\tb" + r"\x9b\u202e\ud800 é"
    )
    assert without_controls("a\nb\rc", lines=True) == "a\nb\\rc"
    for sign in SIGNS:
        assert not OBEYED.search(without_controls(sign)) and "\n" not in without_controls(sign)
    plain = "weights.0 → ünïcode 模型 👩\u200d🔬"
    assert without_controls(plain) == plain


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_say_and_the_console_send_none(encoding: str) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    say(EVIL, file)
    console(file).print(EVIL)
    file.flush()
    text = raw.getvalue().decode(encoding)
    assert not OBEYED.search(text) and "[red]z[/red]" in text and ":smile:" in text


def test_a_console_on_a_terminal_keeps_its_own_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    made = console(file)
    made._force_terminal = True
    made._color_system = made._detect_color_system()
    with made.capture() as out:
        made.print(Text("bad\x1b[2J", "red"))
    assert out.get() == "\x1b[31mbad\\x1b[2J\x1b[0m\n"


def test_places_are_links_on_a_terminal_and_text_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another file whose name ends alike, and another line whose number begins alike, have links of their own."""
    monkeypatch.chdir(tmp_path)
    for name in ("a b.py", "ba b.py"):
        Path(name).write_text("x = 1\n" * 20)
    sites = [
        Site(str(tmp_path / name), line, "f", "x = 1") for name, line in (("a b.py", 1), ("a b.py", 12), ("ba b.py", 1))
    ]
    sites.append(Site(str(tmp_path / "gone.py"), 3, "f", "x = 1"))
    text = "   cause  a b.py:1 in f\n   cause  a b.py:12 in f\n   cause  ba b.py:1 in f\n   cause  gone.py:3 in f\n"
    places = [FindingPlace("cause", f"{Path(s.file).name}:{s.line} in f", s.text, s.line, file=s.file) for s in sites]
    shown = linked(text, places)
    links = re.findall(r"\x1b\]8;;(.*?)\x1b\\(.*?)\x1b\]8;;\x1b\\", shown)
    first, second = ((tmp_path / name).as_uri() for name in ("a b.py", "ba b.py"))
    assert links == [(first, "a b.py:1"), (first, "a b.py:12"), (second, "ba b.py:1")]
    assert re.sub(r"\x1b\]8;;.*?\x1b\\", "", shown) == text and "%20" in first
    out = io.StringIO()
    write([problem(1, Finding("none-grad", "warning", "t", "likely", sites=(FindingSite("cut", sites[0]),)))], out)
    assert "a b.py:1 in f" in out.getvalue() and "\x1b" not in out.getvalue()


def hostile() -> Trace:
    """A trace in which whatever can be named is named to do harm."""
    site = Site(f"/tmp/{EVIL}.py", 3, EVIL, f"    x = {EVIL}")
    nodes = [
        Node(0, f"{EVIL}Backward0", 0, EVIL, 0, site, EVIL, None, ((1, 0),), None),
        Node(1, "AccumulateGrad", 2**64 - 1, EVIL, 0, site, EVIL, f"{EVIL}.weight", (), (2,)),
    ]
    stat = GradStat((2,), EVIL, 1.0)
    runs = [NodeRun(nodes[0], 0, 0.1, (stat,), (stat,)), NodeRun(nodes[1], 1, 0.1, (stat,), ())]
    call = BackwardCall(0, 0, EVIL, {EVIL: EVIL}, (), site, 0.1, None, runs)
    step = Step(0, 0.1, 1.0, (0,), (ParameterStat(f"{EVIL}.weight", 1.0, 1.0, 1.0),))
    finding = Finding(
        "nonfinite-forward",
        "error",
        f"title {EVIL}",
        "certain",
        *(EVIL, EVIL, EVIL),
        (f"{EVIL}.weight",),
        0,
        None,
        (FindingSite(f"role {EVIL}", site),),
        {EVIL: EVIL},
        f"advice {EVIL}",
    )
    facts = Facts(
        (Parameter(f"{EVIL}.weight", (2,), True, 1, True, True, 1, 0, EVIL),),
        (Unseen(EVIL, 1, EVIL),),
        (),
        (RankSeen(0, 1, machine=EVIL, error=EVIL, gaps=(EVIL,)), RankSeen(1, 2, machine=EVIL, error=EVIL)),
    )
    module = ModuleCall(0, EVIL, EVIL, 1, 0, -1, site, ((2,),))
    info = {"script": f"{EVIL}.py", "started": 1.0, "error": EVIL, "arguments": [EVIL], "machine": EVIL}
    return Trace([TracedStep(step, [call], lambda: [module])], facts, info, [finding])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return save(hostile(), tmp_path / "run")


def test_no_command_sends_any(run: Path) -> None:
    for command in (
        ["show", str(run)],
        ["show", "--all", str(run)],
        ["show", "--json", str(run)],
        ["show", "--format", "github", str(run)],
        ["top", "--once", str(run)],
        ["runs", str(run.parent)],
        ["show", EVIL],
        ["explain", EVIL],
        [EVIL],
    ):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(command)
        text = out.getvalue() + err.getvalue()
        assert text.strip() and not OBEYED.search(text), (command, OBEYED.search(text))
        assert code in (0, 2) and (not code or err.getvalue().count("\n") == 1), (command, err.getvalue())


def test_a_name_cannot_forge_a_command_of_github() -> None:
    trace = hostile()
    (finding,) = trace.findings
    (line,) = workflow_commands([finding])
    assert "\n" not in line and "\r" not in line
    out = io.StringIO()
    say(line, out)
    assert out.getvalue().count("::error ") == 1 and not OBEYED.search(out.getvalue())


def test_texts_of_objects_have_none() -> None:
    trace = hostile()
    nodes = [run.node for run in trace.steps[0].backwards[0].nodes]
    for shown in (
        *(repr(trace), repr(trace.findings), repr(trace.steps), repr(trace.steps[0].backwards)),
        *(repr(trace.parameters), repr(trace[EVIL])),
        text_table([EVIL], [[EVIL]]),
    ):
        assert not OBEYED.search(shown), shown
    assert nodes


def hostile_model() -> torch.nn.Module:
    model = torch.nn.Sequential()
    model.add_module(EVIL, torch.nn.Linear(2, 2))
    model.add_module("last", torch.nn.Linear(2, 1))
    return model


def test_texts_of_live_objects_have_none() -> None:
    model, x = hostile_model(), torch.randn(3, 2)
    with backprobe.edit_gradients(model, "*", backprobe.gradient_ops.scale(2.0)) as log:
        model(x).sum().backward()
    with backprobe.capture(model) as values:
        loss = model(x).sum()
        reached = backprobe.sensitivity(values, loss)
    graph, ledger = backprobe.graph(loss, model=model), backprobe.saved_tensors(loss)
    wider = backprobe.graph(model(x).relu().sum(), model=model)
    shown = [str(log), *map(repr, log.entries), repr(reached), str(graph), repr(graph), *map(str, graph), str(ledger)]
    shown += [str(graph.compare(wider)), repr(backprobe.linearize(model(x).sum(), dict(model.named_parameters())))]
    assert sum("\\x1b" in text for text in shown) >= 5
    assert not [text for text in shown if OBEYED.search(text)]
    with pytest.raises(backprobe.BackprobeError) as caught:
        backprobe.sensitivity(values, EVIL + "x")
    assert "\\x1b" in str(caught.value) and not OBEYED.search(str(caught.value))


def test_alerts_of_trackers_have_none() -> None:
    alert = Alert(EVIL, EVIL, f"first\n{EVIL}", "WARN", 0)
    assert not OBEYED.search(alert.title + alert.text) and "\n" not in alert.title and alert.text.startswith("first\n")


def test_the_prompt_sends_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model = hostile_model()
    one_line = re.sub(r"[\s\x1c\x85\u2028\u2029\x00\ud800]", " ", EVIL)
    harmless = [word for word in COMMANDS if word not in ("quit", "finish", "abort", "interact", "pdb", "rerun")]
    lines = [*harmless, *(f"{word} {one_line}" for word in harmless), one_line, "n", *harmless, "f"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    with backprobe.breakpoint_backward(model=model):
        model(torch.randn(3, 2)).sum().backward()
    text = capsys.readouterr().out
    assert "standard input has ended" not in text, text
    assert "\\x1b" in text and not OBEYED.search(text), OBEYED.search(text)


def test_a_page_holds_none_of_it(run: Path, tmp_path: Path) -> None:
    """The document is base64, and the title is escaped."""
    page = tmp_path / "page.html"
    assert main(["report", "-o", str(page), str(run)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "<img src=x>" not in text and "\u202e" not in text
    trace = hostile()
    for shown in (trace._repr_html_(), trace.findings._repr_html_(), trace.steps._repr_html_()):  # type: ignore[attr-defined]
        assert "<img src=x>" not in shown
