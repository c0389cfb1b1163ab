"""The page with an embedded document: one file that opens anywhere."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..basics.errors import BackprobeError
from ..basics.files import replace_text
from ..basics.text import counted
from ..records.places import NOT_KEPT
from ..traces import Trace
from .columns import text
from .document import document, packed

#: The element of the built page whose text holds the data.
_DATA = '<script id="data" type="text/plain"></script>'
_TITLE = "<title>backprobe</title>"


def page() -> str:
    """Return the page as it was built, without data.

    :raises BackprobeError: the page is missing: this is a checkout in which it was never built.
    """
    try:
        return files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BackprobeError("backprobe/report/page.html is not there: build it with `make page`") from None


def filled(made: Mapping[str, object], title: str = "") -> str:
    """Return the page with the document `made` embedded as base64, so that it cannot contain HTML."""
    data = base64.b64encode(packed(made)).decode()
    whole = page().replace(_DATA, f'<script id="data" type="text/plain">{data}</script>', 1)
    return whole.replace(_TITLE, f"<title>{html.escape(title)}: backprobe</title>", 1) if title else whole


def served(token: str) -> str:
    """Return the page without data; it requests its data from the server, with the secret `token`."""
    meta = f'<meta name="backprobe-live" content="{html.escape(token, quote=True)}">'
    return page().replace(_TITLE, f"{_TITLE}\n    {meta}", 1)


def write(trace: Trace, path: str | os.PathLike[str], name: str = "") -> Path:
    """Write `trace` as a page to the file `path`.

    :raises BackprobeError: the file cannot be written.
    """
    made = document(trace, name)
    return save(made, Path(path), made["run"]["name"])


def save(made: Mapping[str, object], target: Path, title: str) -> Path:
    """Write a document as a page to the file `target`.

    :raises BackprobeError: the file cannot be written.
    """
    try:
        replace_text(target, filled(made, title))
    except OSError as error:
        raise BackprobeError(f"cannot write the report to {target}: {error.strerror or error}") from error
    return target


def contents(made: Mapping[str, Any], machine: str = "") -> str:
    """Return a sentence that lists what a page contains that a user may not want to share, such as source lines.

    :param made: the document of the page.
    :param machine: the host name of the run, which the page may contain.
    """
    run, sources = made["run"], made["sources"]
    kept = [sum(line != NOT_KEPT for line in one["lines"]) for one in sources if not one["library"]]
    said = ["names of modules and parameters", "losses and norms"]
    if kept or any(site["text"] for site in made["sites"]):
        said.append(f"source lines of {counted(len(kept), 'file')} ({sum(kept):,} lines)" if kept else "source lines")
    said += ["arguments of the script"] * bool(run["arguments"]) + ["the text of an error"] * bool(run["error"])
    said += ["values of tensors (histograms, maps)"] * bool(made["tensors"])
    said += [f"the host name {machine}"] * bool(machine and machine in text(made))
    return f"This file contains: {', '.join(said)}."


def frame(trace: Trace) -> str:
    """Return the page for a notebook's cell, in an iframe."""
    made = document(trace)
    page = html.escape(filled(made, made["run"]["name"]), quote=True)
    style = "width:100%;height:720px;border:1px solid #8886;border-radius:6px"
    return f'<iframe sandbox="allow-scripts allow-downloads allow-popups" style="{style}" srcdoc="{page}"></iframe>'
