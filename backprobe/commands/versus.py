"""``backprobe compare -- train.py --vs ...``: makes both runs, then compares them."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..basics.errors import BackprobeError
from .files import new_run


class _Parser(argparse.ArgumentParser):
    """Parser of the changes after ``--vs``; reports wrong use as a ``BackprobeError``."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Raise a ``BackprobeError`` with the message, instead of printing the usage and exiting."""
        raise BackprobeError(f"--vs: {message}")


def _changes(given: list[str]) -> argparse.Namespace:
    """Parse how the second run differs from the first.

    :raises BackprobeError: there are no changes, or one is invalid.
    """
    parser = _Parser(prog="--vs", add_help=False)
    parser.add_argument("--dtype")
    parser.add_argument("--compiled", nargs="?", const="inductor")
    parser.add_argument("--device")
    parser.add_argument("--seed")
    parser.add_argument("--threads")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--rev")
    options = parser.parse_args(given)
    if not given:
        raise BackprobeError(
            "--vs says how the second run differs: --dtype, --compiled, --device, --seed, --threads, --env X=1 or --rev"
        )
    for one in options.env:
        if "=" not in one:
            raise BackprobeError(f"--vs: --env {one}: it is NAME=VALUE")
    return options


def both(given: list[str], is_module: bool, record: list[str]) -> list[Path]:
    """Run the script twice, the second time with changes, and return the folders of the runs.

    :param given: the script, its arguments, ``--vs`` and the changes.
    :param record: options of ``backprobe run``.
    :raises BackprobeError: a run recorded nothing to compare.
    """
    at = given.index("--vs")
    script, changes = given[:at], _changes(given[at + 1 :])
    if not script:
        raise BackprobeError("name a script to run: backprobe compare -- train.py --vs --seed 1")
    try:
        folders = [new_run(script[0]).absolute(), new_run(script[0]).absolute()]
    except OSError as error:
        raise BackprobeError(f"cannot write a run: {error}") from None
    command = [sys.executable, "-m", "backprobe", "run", "--quiet", "--record-ops", *record]
    with _revision(changes.rev) as place:
        for number, folder in enumerate(folders):
            more = ["-m"] if is_module else []
            environment = dict(os.environ)
            if number:
                for kind in ("dtype", "compiled", "device", "seed", "threads"):
                    value = getattr(changes, kind)
                    more += ["--override", f"{kind}={value}"] if value is not None else []
                environment.update(one.split("=", 1) for one in changes.env)
            where = place if number else None
            done = subprocess.run(
                [*command, "--out", str(folder), *more, *script], env=environment, cwd=where, stdout=sys.stderr
            )
            if not list((folder / "compare").glob("step-*")):
                said = f"exit code {done.returncode}"
                raise BackprobeError(f"{shlex.join(script)} left nothing to compare ({said}); see {folder}")
    return folders


@contextmanager
def _revision(commit: str | None) -> Iterator[str | None]:
    """Yield the counterpart of the working folder in a temporary checkout of another commit; ``None`` for no commit.

    :raises BackprobeError: git cannot make the checkout.
    """
    if commit is None:
        yield None
        return

    def git(*args: str) -> str:
        """Run git and return its output.

        :raises BackprobeError: it fails.
        """
        done = subprocess.run(["git", *args], capture_output=True, text=True)
        if done.returncode:
            raise BackprobeError(f"git {' '.join(args[:2])}: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout.strip()

    inside = git("rev-parse", "--show-prefix")
    with tempfile.TemporaryDirectory() as folder:
        tree = os.path.join(folder, "tree")
        git("worktree", "add", "--detach", tree, commit)
        try:
            yield os.path.join(tree, inside)
        finally:
            git("worktree", "remove", "--force", tree)
