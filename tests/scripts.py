"""Helpers that run a watched script in the test's own process."""

from __future__ import annotations

import linecache
import sys
import textwrap
import warnings

from watching import watched

from backprobe.observe.session import Settings

PREAMBLE = """
import copy, math
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
def raises(f):
    try:
        f()
    except RuntimeError:
        return True
    return False
"""


def run(tmp_path, text, *topics):
    """The whole text of a script, what was found in it when `topics` were asked for, and its variables."""
    path = tmp_path / "train.py"
    text = PREAMBLE + textwrap.dedent(text)
    path.write_text(text)
    linecache.checkcache()
    space = {"__name__": "__main__"}
    session, collector = watched(Settings(checks=frozenset(topics)))
    session.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # what a person's script warns of is not our tests' business
            exec(compile(text, str(path), "exec"), space)
    finally:
        session.stop()
    assert session.error is None, session.error
    assert sys.getprofile() is None
    return text, list(collector.trace(session).findings), space


def findings(tmp_path, text):
    """The text and the findings."""
    return run(tmp_path, text)[:2]


def line_of(text, part):
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)
