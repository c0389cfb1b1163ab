"""mkdocs hook that generates the pages of the site that are not files in docs/."""

from __future__ import annotations

import argparse
import ast
import json
import posixpath
import re
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KINDS = "backprobe/findings/"
#: Reports that ``make docs`` has made, and where their page has them.
GALLERY, REPORTS = ROOT / "build" / "gallery", "<!-- reports -->"
#: Files of the repository that are pages of the site, and what they are called there.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    f"{KINDS}README.md": "findings/index.md",
    **{path.relative_to(ROOT).as_posix(): f"findings/{path.name}" for path in (ROOT / KINDS).glob("*/*.md")},
}
#: A link, or code, in which nothing is one.
_LINK = re.compile(
    r"^```.*?^```$|(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s:]+?\.\w+)(#[^)\s]*)?\)|`[^`\n]*`", re.MULTILINE | re.DOTALL
)


def page_of(path: str) -> str | None:
    """Return the site's path of a repository file, or ``None`` if the site does not have it."""
    if path in PAGES:
        return PAGES[path]
    inside = path.removeprefix("docs/")
    return inside if inside != path and (ROOT / path).is_file() else None


def linked(text: str, source: str) -> str:
    """`text` of the file `source` of the repository, with its links as they are in the site. What is no part of it is
    named and not linked."""
    page = page_of(source)
    assert page is not None

    def mended(match: re.Match[str]) -> str:
        picture, shown, target, anchor = match.groups()
        if target is None:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if (found := page_of(path)) is None:
            if not (ROOT / path).exists():
                raise ValueError(f"{source} links to {target}, which is not there")
            return f"`{path}`" if "`" not in shown and shown == path else shown
        return f"{picture}[{shown}]({posixpath.relpath(found, posixpath.dirname(page))}{anchor or ''})"

    return _LINK.sub(mended, text)


def api() -> str:
    """The page of all public names: what mkdocstrings is asked for."""
    import backprobe

    parts = [
        "# Python",
        "What `import backprobe` gives. Names are loaded when they are used; reading stored runs needs no torch.",
    ]
    for name in backprobe.__all__:
        module, attribute = backprobe._PUBLIC[name]
        options = {"heading": f"backprobe.{name}", "toc_label": f"backprobe.{name}", "heading_level": "2"}
        if not attribute:
            options["members"] = str(_members(module))
        told = "".join(f"        {key}: {value}\n" for key, value in options.items())
        parts.append(f"::: backprobe.{name if attribute else module}\n    options:\n{told}")
    parts.append("## Callbacks of frameworks")
    names = "transformers.BackprobeCallback", "lightning.BackprobeCallback", "accelerate.watch", "watching.Options"
    for name in names:
        parts.append(f"::: backprobe.integrations.{name}\n    options:\n        show_root_full_path: true\n")
    return "\n\n".join(parts) + "\n"


def _members(module: str) -> list[str]:
    """The public functions and classes that a module defines itself."""
    path = ROOT / "backprobe" / Path(*module.split("."))
    tree = ast.parse(path.with_suffix(".py").read_text())
    defined = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return [name for name in defined if not name.startswith("_")]


def commands() -> str:
    """The page of the commands and their options, as ``--help`` says them."""
    from backprobe.commands import _COMMANDS, Parser

    said = "As `backprobe COMMAND --help` has it. Wrong use exits with 2 and one line on standard error."
    parts = ["# Commands", said]
    for command in _COMMANDS:
        parser = Parser(prog=f"backprobe {command.name}", add_help=False)
        command().arguments(parser)
        told = re.sub(r"^    ", "", command.__doc__ or "", flags=re.MULTILINE).strip()
        told = re.sub(
            r"^((?:    .*\n?)+)", lambda block: f"```text\n{block[1].rstrip()}\n```\n", told, flags=re.MULTILINE
        )
        rows = [f"| `{_named(action)}` | {_help(parser, action)} |" for action in parser._actions]
        parts.append(f"## {command.name}\n\n{told}")
        if rows:
            parts.append("\n".join(["| option | meaning |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def _named(action: argparse.Action) -> str:
    """How an option or argument is written."""
    value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest)
    if not action.option_strings:
        return str(value).upper()
    return ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return re.sub(r"([|*<_])", r"\\\1", text)


def made() -> dict[str, str]:
    """The pages that are made, by the names that they have in the site."""
    pages = {page: linked((ROOT / path).read_text(), path) for path, page in PAGES.items()}
    pages["index.md"] = f"---\nhide: [navigation]\n---\n\n{pages['index.md']}"
    return {**pages, "api.md": api(), "commands.md": commands()}


def fenced(text: str) -> str:
    """A docstring with its doctests as blocks of code."""
    lines, inside = [], False
    for line in text.splitlines():
        if not inside and line.startswith(">>> "):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines += ["```", ""]
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


def gallery(folder: Path = GALLERY) -> str:
    """Return the Markdown of the gallery page, for the reports in `folder`.

    :raises FileNotFoundError: the reports were not generated.
    """
    told = folder / "reports.json"
    if not told.is_file():
        raise FileNotFoundError(f"{told} is not there: make the reports with `python docs/gallery.py {folder}`")
    found = {one["name"]: one for one in json.loads(told.read_text())}
    parts = []
    for shown in runpy.run_path(str(ROOT / "docs" / "gallery.py"))["REPORTS"]:
        one = found[shown.name]
        kind = f"[`{one['kind']}`](findings/{one['kind']}.md): " if one["kind"] else ""
        said = f"> {kind}{one['found']}" if one["found"] else "> No problems found."
        link = f'<a href="reports/{shown.name}.html" class="md-button">Open the report</a>'
        parts.append(f"## {shown.title}\n\n{said}\n\n{shown.look}\n\n```sh\n{shown.typed()}\n```\n\n{link}")
    return "\n\n".join(parts)


# What mkdocs calls.


def on_config(config: Any) -> Any:
    kinds = sorted(page for page in PAGES.values() if page.startswith("findings/") and page != "findings/index.md")
    for part in config.nav:
        for entry in part.get("Reference", ()):
            if isinstance(entry, dict) and "Findings" in entry:
                entry["Findings"] = ["findings/index.md", *kinds]
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, text in made().items():
        files.append(File.generated(config, name, content=text))
    for report in GALLERY.glob("*.html"):
        files.append(File.generated(config, f"reports/{report.name}", abs_src_path=str(report)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri == "gallery.md":
        return linked(markdown, "docs/gallery.md").replace(REPORTS, gallery())
    if page.file.generated_by is None:
        return linked(markdown, f"docs/{page.file.src_uri}")
    return markdown


def __getattr__(name: str) -> Any:
    """``Doctests``, an extension of griffe, which reads the docstrings: made when it is asked for."""
    if name != "Doctests":
        raise AttributeError(name)
    import griffe

    class Doctests(griffe.Extension):
        def on_object(self, *, obj: Any, **_: Any) -> None:
            if obj.docstring is not None:
                obj.docstring.value = fenced(obj.docstring.value)

    return Doctests
