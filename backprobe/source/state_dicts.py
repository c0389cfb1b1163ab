"""How the user's code takes, keeps and loads state dicts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import Site
from .index import SourceIndex, index_of, last_name, spans


def keeps_for(taken: Site, loaded: Site) -> bool:
    """Return whether the statement at `taken` assigns to a name that the call of `loaded` loads from."""
    names = {
        last_name(node)
        for index, call in _loads(loaded)
        for given in (*call.args[:1], *(word.value for word in call.keywords if word.arg == "state_dict"))
        for node in index.walk(given)
    }
    index = index_of(taken.file)
    written = {last_name(write.target) for write in index.writes if spans(write.node, taken.line)}
    return not names.isdisjoint(written - {""})


def other_name_of(loaded: Site) -> Site | None:
    """Return the line ``x = y``, if ``x.load_state_dict(y.state_dict())`` stands at `loaded`; ``None`` without one."""
    for index, call in _loads(loaded):
        given = call.args[0] if call.args else None
        if not isinstance(given, ast.Call) or last_name(given.func) != "state_dict":
            continue
        receiver, source = index.reference(_owner(call)), index.reference(_owner(given))
        if receiver is None or source is None or receiver == source:
            continue
        writes = [write for write in index.writes_by_reference.get(receiver, ()) if write.how == "assign"]
        same = [write for write in writes if isinstance(write.value, (ast.Name, ast.Attribute))]
        for write in same:
            named = index.reference(write.value)
            if named is not None and (named == source or named.name == source.name):
                return index.site(write.node)
    return None


def _owner(call: ast.Call) -> ast.expr | None:
    """Return ``x`` for a call ``x.method(...)``; ``None`` for others."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _loads(site: Site) -> Iterator[tuple[SourceIndex, ast.Call]]:
    """Yield the calls of ``load_state_dict`` at a line, with the index of the file."""
    index = index_of(site.file)
    for call in index.of(ast.Call):
        if last_name(call.func) == "load_state_dict" and spans(call, site.line):
            yield index, call
