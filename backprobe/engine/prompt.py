"""The prompt at a stop, in the manner of pdb."""

from __future__ import annotations

import cmd
import pdb
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import torch
from rich.console import Console
from rich.text import Text

from ..errors import BackprobeError
from ..source.frames import Frames, variables
from ..torchside import private
from . import show
from .control import Pilot
from .options import breakpoint_from
from .provenance import around
from .resume import ABORT, CONTINUE, FINISH, Resume, step_from
from .stop import Stop
from .values import summary

#: What ``help`` shows: title, and (command, what it does).
_HELP: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Go on",
        (
            ("n(ext) [N]", "to before the next node (N times)"),
            ("s(tep)", "a half step: run this node and stop after it, then before the next; into nested backwards"),
            ("m(odule)", "to the first node of another module"),
            ("o(ut)", "out of this module, or of the one chosen with u"),
            ("unt(il) PLACE", "to the next place that fits, as in b"),
            ("c(ontinue)", "to the next breakpoint"),
            ("f(inish)", "without any stop to the end of the script"),
            ("back [N]", "to the stop before (N stops), where the backward keeps its graph"),
        ),
    ),
    (
        "Look",
        (
            ("g(radients)", "the incoming gradients, and the outgoing ones when the node has run"),
            ("saved", "the tensors that the node has kept from the forward"),
            ("l(ist)", "the lines of the forward that made this node"),
            ("w(here)", "the way from the loss to here"),
            ("graph [N | all]", "the nodes in the order they run: done, here, to come"),
            ("ready", "the nodes whose gradients have all come"),
            ("u(p), d(own)", "to the module around this one, and back: its parameters and how much of it has run"),
            ("rerun [float64]", "run the node by itself and compare with the engine; in float64: its rounding error"),
            ("p EXPR, !STATEMENT", "Python with your variables, and: stop, node, grads, grad_outputs, grad_inputs, "
             "saved, module, torch"),
            ("why", "after an exception: what backprobe makes of it"),
            ("pdb", "Python's debugger at the line that called backward, or that raised; its c comes back here"),
        ),
    ),
    ("Change", (("replace [K] EXPR", "another gradient number K (0): replace grads[0] * 0.5, replace 1 0.0"),)),
    (
        "Breakpoints",
        (
            ("b(reak) PLACE [if COND]", "stop there; without arguments list them"),
            ("tbreak PLACE [if COND]", "the same, once"),
            ("disable N, enable N, cl(ear) N", "turn one off, on, or remove it"),
        ),
    ),
    ("End", (("abort", "end this backward with an exception"), ("q(uit)", "end the backward and the script"))),
)  # fmt: skip
_PLACES = """PLACE is one of
  AddmmBackward0, *Norm*          a node type, with wildcards
  module encoder.* [enter|leave]  the nodes of a module; its first node; after its last
  param *.bias                    before a parameter's gradient is accumulated
  train.py:41                     nodes that this line of the forward made
  #1234                           a sequence number
followed by 'before' (default), 'after' or 'both' where wanted.
COND is Python with: norm, nonfinite, grads, shape, node, module, parameter, phase. It is about the incoming gradients
before a node, the outgoing ones after it. 'b norm > 10' and 'b nonfinite' stop at any node, before or after it."""
_ALIASES = {
    "n": "next", "s": "step", "m": "module", "o": "out", "r": "out", "return": "out", "unt": "until", "c": "continue",
    "cont": "continue", "f": "finish", "g": "gradients", "grads": "gradients", "l": "list", "w": "where", "bt": "where",
    "u": "up", "d": "down", "b": "break", "cl": "clear", "clear": "clear", "q": "quit", "exit": "quit", "h": "help",
    "?": "help", "print": "p",
}  # fmt: skip


class Prompt(cmd.Cmd):
    """Asks a person at each stop how to go on.

    :param frames: tells the user's frames, for the variables of ``p``.
    :param findings: what backprobe makes of an exception, as lines.
    :param commands: given at the first stop before any is read.
    :param source: where commands are read instead of standard input.
    :param quit: how ``q`` ends the script; without it only the backward is aborted.
    """

    prompt = "(backprobe) "
    use_rawinput = True

    def __init__(
        self,
        frames: Frames,
        findings: Callable[[], Sequence[str]],
        commands: Sequence[str] = (),
        source: TextIO | None = None,
        quit: BaseException | None = None,
    ) -> None:
        super().__init__(stdin=source)
        self.use_rawinput = source is None
        self._frames, self._findings, self._quit = frames, findings, quit
        self.cmdqueue = list(commands)
        #: Set by whoever makes the pilot.
        self.pilot: Pilot | None = None
        self._stop: Stop | None = None
        self._resume: Resume | None = None
        self._level = 0
        self._times = 0
        self._names: dict[str, Any] = {}
        self._own: dict[str, Any] = {}
        self._greeted = False

    # The loop

    def ask(self, stop: Stop) -> Resume:
        """Show where we are, and read commands until one goes on."""
        if self._times > 0 and stop.breakpoint is None and stop.phase == "before" and stop.reason == "step":
            self._times -= 1
            if self._times:
                return step_from(stop, "node")
        self._times = 0
        self._stop, self._resume, self._level = stop, None, 0
        sys.stdout.flush()
        if not self._greeted:
            self._greet()
        self._say(show.head(stop.backward, stop.index, stop.phase, stop.reason))
        try:
            with private.unseen():
                while self._resume is None:
                    try:
                        self.cmdloop()
                    except KeyboardInterrupt:
                        self._note("--KeyboardInterrupt--  (q ends the script)")
            return self._resume
        finally:
            self._stop = None
            self._names.clear()  # it holds gradients

    def _greet(self) -> None:
        self._greeted = True
        self._note("backprobe: stopped inside backward. 'help' lists the commands, 'n' goes to the next node.")
        if self.use_rawinput and not sys.stdin.isatty():
            self._note(
                "Commands are read from standard input, which is no terminal. A script that reads standard input too "
                "shares it with them: 'backprobe debug --tty' reads commands from the terminal instead."
            )

    def emptyline(self) -> bool:
        """An empty line repeats the last command, if that only looks or steps."""
        word = self.lastcmd.split()[0] if self.lastcmd.split() else ""
        return self.onecmd(self.lastcmd) if _ALIASES.get(word, word) in _REPEATED else False

    def onecmd(self, line: str) -> bool:
        word, _, rest = line.strip().partition(" ")
        if line.strip().startswith("!"):
            self._python(line.strip()[1:].strip())
            return False
        if word in _ALIASES:
            line = f"{_ALIASES[word]} {rest}"
        try:
            super().onecmd(line)
        except BackprobeError as error:
            self._note(str(error), "red")
        return self._resume is not None

    def default(self, line: str) -> None:
        if line == "EOF":
            self._note("")
            self._note("standard input has ended: no command can come any more; quitting", "red")
            self.do_quit("")
            return
        self._python(line)

    def postloop(self) -> None:
        self.stdout.flush()

    # Go on

    @property
    def stop(self) -> Stop:
        assert self._stop is not None
        return self._stop

    def _go(self, resume: Resume) -> None:
        if self.stop.phase == "exception" and resume.kind not in ("abort", "finish"):
            self._note("the backward has ended with this exception: the script goes on with it")
        self._resume = resume

    def do_next(self, arg: str) -> None:
        """n(ext) [N]: to before the next node, N times."""
        if arg and not (arg.isdigit() and int(arg)):
            self._note(f"n takes a number of steps, not {arg!r}", "red")
            return
        self._times = int(arg) if arg else 0
        self._go(step_from(self.stop, "node"))

    def do_step(self, arg: str) -> None:
        """s(tep): a half step. Before a node: run it and stop after it (or inside, if it runs a backward of its own).
        After a node: to before the next."""
        self._go(step_from(self.stop, "into"))

    def do_module(self, arg: str) -> None:
        """m(odule): to the first node of another module."""
        self._go(step_from(self.stop, "module"))

    def do_out(self, arg: str) -> None:
        """o(ut): to the first node outside this module, or outside the one chosen with u."""
        levels = self._levels()
        self._go(step_from(self.stop, "out", levels[self._level] if self._level else None))

    def do_until(self, arg: str) -> None:
        """unt(il) PLACE [if COND]: to the next place that fits; see help break."""
        assert self.pilot is not None
        self.pilot.add(breakpoint_from(arg, {"temporary": True}))
        self._go(CONTINUE)

    def do_continue(self, arg: str) -> None:
        """c(ontinue): to the next breakpoint, in this backward or a later one."""
        self._go(CONTINUE)

    def do_finish(self, arg: str) -> None:
        """f(inish): go on without any further stop."""
        self._go(FINISH)

    def do_back(self, arg: str) -> None:
        """back [N]: to the stop before, N stops back; then replace a gradient and go on from there. The backward must
        keep its graph (retain_graph=True): it begins again and runs up to there, with .grad and random numbers put
        back, and what you had replaced before replaced again. Your hooks run again."""
        assert self.pilot is not None
        if arg and not (arg.isdigit() and int(arg)):
            self._note(f"back takes a number of stops, not {arg!r}", "red")
            return
        self._resume = self.pilot.rewind(self.stop, int(arg or 1))

    def do_abort(self, arg: str) -> None:
        """abort: end this backward here; the line that called it raises BackwardAborted."""
        self._go(ABORT)

    def do_quit(self, arg: str) -> None:
        """q(uit): end the backward and the script."""
        if self._quit is not None:
            raise self._quit
        self._go(ABORT)

    # Look

    def do_gradients(self, arg: str) -> None:
        """g(radients): the incoming gradients, and the outgoing ones when the node has run. p grads[0] shows values."""
        self._say(self.stop.gradient_lines())

    def do_saved(self, arg: str) -> None:
        """saved: the tensors that the node has kept from the forward. p saved['self'] shows values."""
        self._say(show.saved(self.stop.saved))

    def do_list(self, arg: str) -> None:
        """l(ist): the lines of the forward that made this node."""
        self._say(show.source(self.stop.backward, self.stop.index))

    def do_where(self, arg: str) -> None:
        """w(here): the way from the loss to here, with modules and lines."""
        self._say(show.way(self.stop.backward, self.stop.index))

    def do_graph(self, arg: str) -> None:
        """graph [N | all]: N nodes before and after this one (12) in the order they run."""
        if arg and arg != "all" and not arg.isdigit():
            self._note(f"graph takes a number or 'all', not {arg!r}", "red")
            return
        stop, around = self.stop, None if arg == "all" else int(arg or 12)
        self._say(show.listing(stop.backward, stop.index, stop.phase, around))

    def do_ready(self, arg: str) -> None:
        """ready: the nodes whose gradients have all come, the next one first."""
        self._say([[("  ", ""), (str(info), "")] for info in self.stop.ready])

    def _levels(self) -> list[str]:
        module = self.stop.node.module
        if module is None:
            raise BackprobeError("the module of this node is not known")
        return around(module)

    def do_up(self, arg: str) -> None:
        """u(p): to the module around: how much of it has run, and its parameters. p module is the module itself."""
        levels = self._levels()
        if self._level + 1 >= len(levels):
            self._note("this is the outermost module")
            return
        self._level += 1
        self._names.clear()
        self._say(show.module(self.stop.backward, levels[self._level]))

    def do_down(self, arg: str) -> None:
        """d(own): back towards the node's own module."""
        levels = self._levels()
        if not self._level:
            self._note("this is the node's own module")
            return
        self._level -= 1
        self._names.clear()
        self._say(show.module(self.stop.backward, levels[self._level]))

    def do_rerun(self, arg: str) -> None:
        """rerun [float64]: run the node by itself from its incoming gradients, in its own precision or in float64.
        After it ran, compare with what the engine got. backprobe.replay runs a whole backward again."""
        if arg not in ("", "float64"):
            self._note(f"rerun takes 'float64' or nothing, not {arg!r}", "red")
            return
        again = self.stop.rerun(dtype=torch.float64 if arg else None)
        for k, grad in enumerate(again.grad_inputs):
            equal = ""
            if again.equal is not None and not arg:
                equal = "  as the engine's" if again.equal[k] else "  NOT as the engine's"
            self._note(f"  out [{k}]  {summary(grad)}{equal}")
        if arg and again.error is not None:
            self._note(f"  the engine's are off by {again.error:.2g} of their norm")

    def do_p(self, arg: str) -> None:
        """p EXPR: the value of a Python expression."""
        if not arg.strip():
            self._note("p shows an expression: p grads[0].shape", "red")
            return
        done, value = self._evaluate(arg)
        if done:
            self._note(repr(value))

    def do_why(self, arg: str) -> None:
        """why: after an exception, what backprobe makes of it."""
        found = self._findings() if self.stop.phase == "exception" else []
        for line in found:
            self._note(line)
        if not found:
            self._note("backprobe has nothing to say about it" if self.stop.error else "nothing was raised")

    def do_pdb(self, arg: str) -> None:
        """pdb: Python's debugger at the line that called backward, or that raised. Its c comes back here."""
        debugger = pdb.Pdb(nosigint=True)
        debugger.reset()
        error = self.stop.error
        if error is not None and error.__traceback__ is not None:
            debugger.interaction(None, error.__traceback__)
            return
        frame = self._frame()
        if frame is None:
            self._note("no frame of yours called this backward in this thread", "red")
            return
        debugger.interaction(frame, None)

    # Change

    def do_replace(self, arg: str) -> None:
        """replace [K] EXPR: put another gradient in the place of number K (0): an incoming one before the node, an
        outgoing one after it. EXPR is a tensor of the same shape and dtype, a number, or a function of the gradient."""
        first, _, rest = arg.partition(" ")
        index, text = (int(first), rest) if first.isdigit() and rest.strip() else (0, arg)
        if not text.strip():
            self._note("replace what by what? replace grads[0] * 0.5, or: replace 1 0.0", "red")
            return
        done, value = self._evaluate(text)
        if done:
            new = self.stop.replace(value, index)
            self._names.clear()
            self._note(f"  [{index}]  {summary(new)}")

    # Breakpoints

    def do_break(self, arg: str) -> None:
        """b(reak) PLACE [if COND]: stop there. Without arguments: list the breakpoints."""
        assert self.pilot is not None
        if not arg:
            for point in self.pilot.breakpoints:
                state = "" if point.enabled else "  (disabled)"
                once = "  (once)" if point.temporary else ""
                self._note(f"  {point.number}  {point}{once}{state}  hit {point.hits} times")
            if not self.pilot.breakpoints:
                self._note("no breakpoints; 'help break' shows the forms")
            return
        self._add(arg, False)

    def do_tbreak(self, arg: str) -> None:
        """tbreak PLACE [if COND]: stop there once."""
        self._add(arg, True)

    def _add(self, arg: str, temporary: bool) -> None:
        assert self.pilot is not None
        point = breakpoint_from(arg, {"temporary": temporary})
        self.pilot.add(point)
        self._note(f"breakpoint {point.number}: {point}")
        try:
            point.check(self.stop.backward)
        except BackprobeError as error:
            self._note(f"it cannot stop in this backward: {error}", "yellow")

    def do_disable(self, arg: str) -> None:
        """disable N ...: keep breakpoints, and do not stop at them."""
        self._each(arg, lambda point: point.disable())

    def do_enable(self, arg: str) -> None:
        """enable N ...: stop at disabled breakpoints again."""
        self._each(arg, lambda point: point.enable())

    def do_clear(self, arg: str) -> None:
        """cl(ear) N ...: remove breakpoints."""
        self._each(arg, lambda point: point.remove())

    def _each(self, arg: str, what: Callable[[Any], None]) -> None:
        assert self.pilot is not None
        known = {str(point.number): point for point in self.pilot.breakpoints}
        if not arg.split():
            self._note("which? give numbers; 'b' lists the breakpoints", "red")
        for word in arg.split():
            if word in known:
                what(known[word])
            else:
                self._note(f"there is no breakpoint {word}; there are: {', '.join(known) or 'none'}", "red")

    # Help

    def do_help(self, arg: str) -> None:
        """help [COMMAND]: this list, or more on one command."""
        name = _ALIASES.get(arg, arg)
        if not arg:
            wide = max(len(c) for _, rows in _HELP for c, _ in rows)
            for title, rows in _HELP:
                self._say([[(title, "bold")], *([("  " + c.ljust(wide + 2), "cyan"), (t, "")] for c, t in rows)])
            self._note(
                "An empty line repeats the last step. Anything else is Python. 'help break' shows what PLACE is."
            )
            return
        text = getattr(self, f"do_{name}", None)
        if text is None or name == "EOF":
            self._note(f"no command {arg!r}; 'help' lists them", "red")
            return
        self._note(" ".join((text.__doc__ or "").split()))
        if name in ("break", "tbreak", "until"):
            self._note(_PLACES)

    # Completion

    def _places(self, text: str, line: str, begin: int, end: int) -> list[str]:
        infos = self.stop.backward.infos
        words = line[:begin].split()
        if words and words[-1] in ("module", "mod"):
            names = {i.module for i in infos if i.module}
        elif words and words[-1] in ("param", "parameter"):
            names = {i.parameter for i in infos if i.parameter}
        else:
            sites = {i.place.site for i in infos if i.place.site}
            names = {i.name for i in infos} | {"module", "param", "nonfinite", "norm"}
            names |= {f"{s.file.rpartition('/')[2]}:{s.line}" for s in sites}
        return sorted(str(n) for n in names if n and n.startswith(text))

    complete_break = complete_tbreak = complete_until = complete_b = complete_unt = _places

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        names = {name[3:] for name in self.get_names() if name.startswith("do_")} - {"EOF"}
        return sorted(n for n in names if n.startswith(text))

    def completedefault(self, *ignored: Any) -> list[str]:
        text = ignored[0] if ignored else ""
        return sorted(n for n in self._namespace() if n.startswith(text)) if self._stop is not None else []

    complete_p = completedefault

    # Python

    def _frame(self) -> Any:
        """The user's frame that called backward, where it is this thread's."""
        frame: Any = sys._getframe(1)
        while frame is not None and not self._frames.is_user(frame.f_code):
            frame = frame.f_back
        return frame

    def _namespace(self) -> dict[str, Any]:
        if self._names:
            return self._names
        stop, frame = self.stop, self._frame()
        names: dict[str, Any] = {}
        if frame is not None:
            names.update(frame.f_globals)
            names.update(variables(frame))
        names.update(self._own)
        names.update(stop=stop, node=stop.node, grads=stop.gradients, grad_outputs=stop.grad_outputs, torch=torch)
        names.update(saved=stop.saved, error=stop.error)
        if stop.phase == "after":
            names["grad_inputs"] = stop.grad_inputs
        if stop.node.module is not None:
            names["module"] = stop.backward.forward.module_at(self._levels()[self._level])
        self._names = names
        return names

    def _evaluate(self, text: str) -> tuple[bool, Any]:
        try:
            return True, eval(compile(text.strip(), "<prompt>", "eval"), self._namespace())
        except Exception as error:
            self._note(f"{type(error).__name__}: {error}", "red")
            return False, None

    def _python(self, text: str) -> None:
        """An expression, whose value is shown, or a statement; what it assigns is kept for later stops."""
        if not text:
            return
        names = self._namespace()
        before = dict(names)
        try:
            try:
                code = compile(text, "<prompt>", "eval")
            except SyntaxError:
                exec(compile(text, "<prompt>", "exec"), names)
                self._own.update({k: v for k, v in names.items() if k not in before or before[k] is not v})
                self._own.pop("__builtins__", None)
            else:
                value = eval(code, names)
                if value is not None:
                    self._note(repr(value))
        except Exception as error:
            hint = (
                "" if " " in text or not isinstance(error, (NameError, SyntaxError)) else " ('help' lists the commands)"
            )
            self._note(f"{type(error).__name__}: {error}{hint}", "red")
        finally:
            before.clear()

    # Output

    def _say(self, lines: Sequence[show.Line]) -> None:
        console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        for line in lines:
            console.print(Text.assemble(*line))
        sys.stdout.flush()

    def _note(self, text: str, style: str = "") -> None:
        self._say([[(text, style)]])


#: Commands that an empty line repeats.
_REPEATED = frozenset({"next", "step", "module", "out", "continue", "up", "down", "list"})
