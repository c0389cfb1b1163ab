"""Reads files of older formats as tables of the current one.

Format 1 did not name fields: its records were lists in the order of ``_FIELDS``, of which the last ones may be missing,
and the facts of a run were one list in the order of ``_FACTS``. It had no checksums.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from .codec import unsqueeze
from .tables import StoredCall, StoredStep, Tables, bounded

_FIELDS = """
Site file line function text
BadValues nan inf numel shape first
TensorStat name shape dtype bad zeros made
ModuleCall index path class_name call depth parent site outputs grad norm
BadOp first seq op site module call output inputs origin
BadNode node output values zero_incoming saved
Root node shape dtype value bad
Raised type text node certain backward
Mutation tensor shape saved_version found_version op site module region
Reuse freed_by freed_site freed_step node old
BackwardCall index step kind arguments roots site seconds raised nodes bad_nodes bad_ops inside mutation reuse
Step index seconds loss backwards parameters watching
Parameter name shape requires_grad reached alive trained calls quiet_calls root defined replaced turned_off added
Cut op site module parameters count
Stray parameters owner attribute how site optimized
OptimizerSeen name site tensors orphans groups
NoGradient kind site failed module tensor count made
HookSeen reason modules details site bypass
StaleRead parameter on stale hook empty step
Recomputed modules buffers region
RegionDiffers how region cause failed module op forward again raised step backwards changed
RegionGradient region module names difference missing
Retained holder how site module graphs
FunctionChecked name module applied backward what input analytic numeric why
Divergence module class_name difference attributes matching site
SavedBytes site op module bytes tensors names dtype holder
SavedEntry nbytes node name shape dtype op module site tensors views holder holder_name packed
SavedPlaced policy tensors nbytes
SavedUnknown what count why
SavedMoment node module nbytes order
SavedModule path class_name calls inside inputs
SavedMemory step backward looked nodes storages entries curve placed unknown modules
GradientCycle site parameters
SilentWrite tensor op site saver saved backward module node step
Unseen what count note
TensorSeen name kind module step shape dtype edges counts mean std low high zeros nan inf picture
FindingSite role site
Finding kind severity title confidence module node tensor parameters step rank sites evidence advice
RankWait op site began seconds ended
RankSeen rank pid waits trail over error findings steps backwards
"""
#: The kind of each position in the facts; ``asked`` has topics, and a name that ends in 1 stands for one record or
#: none.
_FACTS = (
    "Parameter Cut Unseen Stray OptimizerSeen NoGradient HookSeen Recomputed Retained1 FunctionChecked Divergence "
    "SavedBytes SilentWrite GradientCycle RegionDiffers StaleRead RankSeen asked RegionGradient TensorSeen SavedMemory1"
)
_NODES = ("name", "module", "op", "parameter", "seq", "call", "site", "edges", "leaf_shape")


class TablesOfFormat1(Tables):
    """A file of format 1."""

    short = True

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.fields = {kind: names for kind, *names in map(str.split, _FIELDS.strip().splitlines())}
        self._info = {key: json.loads(value) for key, value in self._rows("info", "key, value")}
        self._facts: dict[str, Any] = dict(zip(_FACTS.split(), self._info.pop("facts", ()), strict=False))
        self._info["asked"] = self._facts.pop("asked", [])
        self._findings = self._info.pop("findings", None)

    def _rows(self, table: str, columns: str, more: str = "", values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(bounded(self.db.execute(f"select {columns} from {table} {more}", values)))

    def records(self) -> dict[str, list[Any]]:
        found = {kind: rows for kind, rows in self._facts.items() if not kind.endswith("1")}
        found |= {kind[:-1]: [row] for kind, row in self._facts.items() if kind.endswith("1") and row is not None}
        return found if self._findings is None else {**found, "Finding": self._findings}

    def step(self, number: int) -> StoredStep | None:
        row = self._row("steps", "head, parameters, trail", number)
        if row is None:
            return None
        seconds, loss, backwards, watching, names = json.loads(row[0])
        return StoredStep([number, seconds, loss, backwards, [], watching], names, *row[1:])

    def calls(self, step: int) -> list[StoredCall]:
        rows = self._rows(
            "backwards", "id, layout, signature, head, norms, seconds", "where step = ? order by id", (step,)
        )
        found = []
        for number, layout, signature, text, norms, seconds in rows:
            named = {**json.loads(text), "index": number, "step": step, "nodes": []}
            head = [named[name] for name in self.fields["BackwardCall"]]
            found.append(StoredCall(layout, signature, head, named, norms, seconds))
        return found

    def part(self, table: str, number: int) -> Any:
        row = self._row(table, "data", number)
        if row is None:
            raise LookupError(f"{table} has no row {number}")
        if table == "names":
            return json.loads(row[0])
        plain = unsqueeze(row[0])
        if table == "layouts":
            strings, sites, nodes, needed = plain
            columns = dict(zip(_NODES, zip(*nodes, strict=True), strict=True)) if nodes else dict.fromkeys(_NODES, ())
            return {"strings": strings, "sites": sites, "nodes": columns, "needed": needed}
        if table == "signatures":
            order, *measured, kinds = plain
            out, came = (
                {name: [row[at] for row in rows] for at, name in enumerate(("node", "number", "slot", "kind"))}
                for rows in measured
            )
            return {"order": order, "out": out, "came": came, "kinds": kinds}
        return plain
