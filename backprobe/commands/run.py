"""``backprobe run``: runs an unchanged training script and observes it."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import Any, Protocol

from ..basics.errors import BackprobeError
from ..basics.files import replace_text
from ..findings import SEVERITIES, all_rules, own_rules
from ..findings.levels.alarms import ALARMS
from ..observe.changes import check
from ..observe.launch import launch
from ..observe.schedule.settings import RECORDING_LEVELS, Settings, budget_of
from ..records.places import SOURCE_MODES
from ..tracking.writers import WRITERS, is_installed
from .files import RUNS
from .script import script_arguments, script_of
from .watcher import Watcher


class _OptionGroup(Protocol):
    """A group of options in the help, as ``argparse`` has them."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action: ...


class Run:
    """Run a training script and report what went wrong in its backward passes.

    Put backprobe's options before the script. Everything after the script is passed to it. Standard output belongs to
    the script; backprobe writes to standard error.
    """

    name = "run"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command, in groups."""
        parser.usage = "backprobe run [OPTION ...] SCRIPT [ARGUMENT ...]"
        script_arguments(parser)
        _output_options(parser.add_argument_group("Output"))
        _what_to_record_options(parser.add_argument_group("What to record"))
        _overhead_options(parser.add_argument_group("Overhead"))
        _alarms_options(parser.add_argument_group("Alarms"))
        _trackers_options(parser.add_argument_group("Trackers"))
        _ci_options(parser.add_argument_group("CI"))
        _comparing_runs_options(parser.add_argument_group("Comparing runs"))

    def run(self, options: argparse.Namespace) -> int:
        """Run the script under observation; return its exit code, or 2 or 3 as the options ask for.

        2 if the file of ``--findings`` could not be written, 3 if ``--fail-on`` applies; a failed script keeps its own
        code.
        """
        _folder_first(options)
        _installed(options)
        if options.save_batch and options.no_keep:
            raise BackprobeError("--save-batch keeps a batch with the run: leave out --no-keep")
        script = script_of(options)
        check(options.override)
        watcher = Watcher(options, settings_of(options))
        code = launch(script, watcher)
        bad = SEVERITIES[: SEVERITIES.index(options.fail_on) + 1] if options.fail_on else ()
        if code == 0 and watcher.unwritten is not None:
            return 2
        if code == 0 and bad and (watcher.stopped or any(f.severity in bad for f in watcher.findings)):
            return 3
        return code


def _output_options(group: _OptionGroup) -> None:
    """Add the options that say where runs, findings and logs are written."""
    group.add_argument("--out", metavar="DIR", help=f"save the run in this folder (default: a new folder in {RUNS}/)")
    group.add_argument("--no-keep", action="store_true", help="do not save the run")
    group.add_argument("--findings", metavar="FILE", help="write the findings as JSON when the script ends")
    group.add_argument(
        "--format",
        choices=("text", "github"),
        default="text",
        help="github: also write a workflow command for each finding, which GitHub shows at its line",
    )
    group.add_argument("--quiet", action="store_true", help="write nothing to standard error")
    group.add_argument(
        "--log-nodes",
        action="store_true",
        help="write one line for each node that a backward call runs (module, source line, gradients, time), in "
        "the steps of --steps and --every",
    )
    group.add_argument("--log-file", metavar="FILE", help="write the log to FILE instead of standard error")
    group.add_argument(
        "--source",
        choices=SOURCE_MODES,
        default="lines",
        help="how much source text to save: lines: the functions around recorded lines (default); full: whole "
        "files; none: no text",
    )
    group.add_argument("--no-source", dest="source", action="store_const", const="none", help="same as --source none")
    group.add_argument(
        "--max-run-mb",
        type=_positive,
        default=256,
        metavar="MB",
        help="limit for the size of the run on disk (256)",
    )


def _what_to_record_options(group: _OptionGroup) -> None:
    """Add the options that say what is recorded, in which steps."""
    group.add_argument(
        "--level",
        choices=RECORDING_LEVELS,
        default="nodes",
        help="what to record: minimal: losses, parameters and updates; nodes: also every node (default); full: "
        "also inspect every gradient and result",
    )
    group.add_argument("--every", type=_positive, default=1, metavar="N", help="record the nodes of every N-th step")
    group.add_argument(
        "--steps",
        type=_steps,
        default=(0, None),
        metavar="A:B",
        help="record the nodes of steps A up to B, without B",
    )
    group.add_argument(
        "--check",
        action="append",
        default=[],
        type=_topic,
        metavar="TOPIC",
        help="run more checks, which cost more: "
        f"{', '.join(f'{t.name} ({t.description})' for t in own_rules().topics)}; plugins can add topics",
    )
    group.add_argument(
        "--layer-stats",
        type=_count,
        metavar="N",
        help="measure weights, gradients, updates, activations and attention of each layer in every N-th step, or "
        "less often if the budget is too small (default: 10 with --check levels, --log-to and the alarm options, "
        "else off)",
    )
    group.add_argument(
        "--histograms",
        action="append",
        default=[],
        metavar="GLOB",
        help="record histograms of module outputs, weights and gradients with these names, such as 'encoder.*', in "
        "steps 0, 1, 2, 5, 10, 20, 50, ... for the report",
    )


def _overhead_options(group: _OptionGroup) -> None:
    """Add the option that limits the overhead."""
    group.add_argument(
        "--budget",
        default="default",
        metavar="SHARE",
        help="the most that backprobe may slow the script down: a share such as 5%% (default, plus one second at "
        "the start), or none. Records the nodes of as many steps as fit; errors and non-finite losses are "
        "explained in the other steps too. If --level, --every, --steps or a similar option chooses the steps, "
        "there is no limit unless you set one",
    )


def _alarms_options(group: _OptionGroup) -> None:
    """Add the options that react to alarms."""
    group.add_argument(
        "--stop-on",
        action="append",
        default=[],
        choices=ALARMS,
        metavar="KIND",
        help=f"interrupt the script, as Ctrl-C does, if an alarm of this kind comes: {', '.join(ALARMS)}",
    )
    group.add_argument(
        "--on-alarm",
        type=_function,
        metavar="MODULE:FUNCTION",
        help="call this function with the finding of each alarm, after the optimizer has stepped; a function of "
        "the script itself is __main__:FUNCTION",
    )
    group.add_argument(
        "--save-batch",
        action="store_true",
        help="save the input of the model with the run if a step has an alarm or an error",
    )
    group.add_argument("--max-batch-mb", type=_positive, default=512, metavar="MB", help="limit for saved inputs (512)")


def _trackers_options(group: _OptionGroup) -> None:
    """Add the options that send statistics to experiment trackers."""
    group.add_argument(
        "--log-to",
        action="extend",
        default=[],
        type=_trackers,
        metavar="TRACKER",
        help="also send statistics, losses and findings to a tracker: tensorboard, wandb, mlflow, trackio, or auto "
        "for the tracker runs that the script has open; separate several with commas",
    )
    group.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="GLOB",
        help="with --log-to: send the curves of layers that match, such as 'update_ratio/encoder.*', and those of "
        "the whole model (default: layers in order, up to 500 curves)",
    )


def _ci_options(group: _OptionGroup) -> None:
    """Add the option that makes findings fail the command."""
    group.add_argument(
        "--fail-on",
        choices=("error", "warning"),
        help="exit with 3 on a finding this severe, or if recording stopped before the script ended",
    )


def _comparing_runs_options(group: _OptionGroup) -> None:
    """Add the options that change or record a run for ``backprobe compare``."""
    group.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KIND=VALUE",
        help="change one setting of the script, to compare it with itself: dtype=float64, device=cuda, "
        "compiled=BACKEND, seed=N, threads=N",
    )
    group.add_argument(
        "--record-ops",
        action="store_true",
        help="record every op of the first three steps, or those of --steps, for 'backprobe compare': "
        "fingerprints of all values and gradients, and tensors",
    )
    group.add_argument(
        "--max-record-mb",
        type=_positive,
        default=512,
        metavar="MB",
        help="limit for the tensors of --record-ops (512)",
    )


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings that the command's options ask for.

    :raises BackprobeError: the options contradict each other.
    """
    first, last = options.steps
    settings = Settings(
        *(options.level, options.every, first, last),
        checks=frozenset(options.check) | ({"levels"} if _alarms(options) else frozenset()),
        histograms=tuple(options.histograms),
        quiet=options.quiet,
        log=_log(options),
        layer_stats=_cadence(options),
        record_ops=options.record_ops,
        max_record_mb=options.max_record_mb,
        max_batch_mb=options.max_batch_mb if options.save_batch else 0,
        source=options.source,
    )
    return replace(settings, budget=budget_of(options.budget, settings))


def _folder_first(options: argparse.Namespace) -> None:
    """Handle ``--record-ops DIR SCRIPT`` like ``--record-ops --out DIR SCRIPT``.

    :raises BackprobeError: the record would not be saved anywhere.
    """
    if not options.record_ops:
        return
    if options.no_keep:
        raise BackprobeError("--record-ops keeps a record with the run: leave out --no-keep")
    folder = options.script.endswith("/") or not os.path.exists(options.script)
    if not options.out and not options.module and folder and options.args and os.path.isfile(options.args[0]):
        options.out, options.script, options.args = options.script, options.args[0], options.args[1:]


def _trackers(text: str) -> list[str]:
    """Parse the names of ``--log-to``, separated by commas.

    :raises argparse.ArgumentTypeError: a name is unknown.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (*WRITERS, "auto"):
            raise argparse.ArgumentTypeError(
                f"invalid choice: {name!r} (choose from {', '.join(map(repr, WRITERS))}, 'auto')"
            )
    return names


def _installed(options: argparse.Namespace) -> None:
    """Check the options for trackers.

    :raises BackprobeError: a requested tracker is not installed, or the options leave nothing to send.
    """
    if options.metrics and not options.log_to:
        raise BackprobeError("--metrics says what trackers are given: say which, with --log-to")
    if options.log_to and options.layer_stats == 0 and options.metrics:
        raise BackprobeError("--metrics chooses among statistics, and --layer-stats 0 measures none")
    for name in options.log_to:
        if name != "auto" and not is_installed(name):
            raise BackprobeError(f"--log-to {name} needs the package {name}: pip install {name}")


def _topic(text: str) -> str:
    """Parse the name of an opt-in check, including those of plugins.

    :raises argparse.ArgumentTypeError: it is unknown.
    """
    names = [topic.name for topic in all_rules().topics]
    if text not in names:
        raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {', '.join(map(repr, names))})")
    return text


def _log(options: argparse.Namespace) -> str:
    """Return the destination of the node log: a path, ``-`` for standard error, or empty for no log.

    An existing file is emptied.

    :raises BackprobeError: the options contradict each other, or the file cannot be written.
    """
    if not options.log_nodes:
        if options.log_file:
            raise BackprobeError("--log-file says where a log goes: say what to log too, with --log-nodes")
        return ""
    if options.level == "minimal":
        raise BackprobeError("--log-nodes needs nodes, and --level minimal records none: use --level nodes or full")
    if not options.log_file:
        return "-"
    path: str = os.path.abspath(options.log_file)
    try:
        replace_text(path, "")  # emptied here: each process of the run appends to it
    except OSError as error:
        raise BackprobeError(f"cannot write the log to {options.log_file}: {error.strerror or error}") from None
    return path


def _alarms(options: argparse.Namespace) -> bool:
    """Return whether any option reacts to alarms."""
    return bool(options.stop_on or options.on_alarm or options.save_batch)


def _cadence(options: argparse.Namespace) -> int:
    """Return N if statistics are measured in every N-th step; 0 for never."""
    asked = _alarms(options) or options.log_to or "levels" in options.check
    given: int | None = options.layer_stats
    return (10 if asked else 0) if given is None else given


def _function(text: str) -> str:
    """Parse ``MODULE:FUNCTION``; it is returned as it is.

    :raises argparse.ArgumentTypeError: it does not have this form.
    """
    module, colon, function = text.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *function.split("."))):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODULE:FUNCTION")
    return text


def _count(text: str) -> int:
    """Parse an integer of 0 or more.

    :raises argparse.ArgumentTypeError: it is negative.
    """
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return value


def _positive(text: str) -> int:
    """Parse an integer of 1 or more.

    :raises argparse.ArgumentTypeError: it is smaller.
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _steps(text: str) -> tuple[int, int | None]:
    """Parse ``A:B``, a range of steps without its end; ``None`` for no end.

    :raises argparse.ArgumentTypeError: it is no such range.
    """
    begin, colon, end = text.partition(":")
    try:
        first, last = int(begin or 0), int(end) if end else None
    except ValueError:
        first = -1
        last = None
    if not colon or first < 0 or (last is not None and last <= first):
        raise argparse.ArgumentTypeError(f"{text!r} is not A:B with 0 <= A < B, such as 100:200 or 100:")
    return first, last
