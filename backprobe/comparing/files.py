"""Storage of the data for a comparison: a folder with one file for each step, and tensors beside them.

Each step is written when it is over, so that a killed run loses no finished step.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from array import array
from pathlib import Path
from typing import Any

from ..basics.errors import BackprobeError
from ..basics.files import inside, replace_text, replacing
from ..basics.privacy import at_home, masked_source, without_home
from ..basics.untrusted import read_gzip, read_text
from ..records import Print, Site, Taken, Tape, TapeOp

#: Name of the folder inside that of a run.
FOLDER = "compare"
FORMAT = 1
#: Maximum size of a step's record, unpacked; an op takes about half a kilobyte.
MAX_STEP_BYTES = 256 << 20
_DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    zlib.error,
)


class TapeWriter:
    """Writes the ops of a run for comparison to `folder`, one file for each step; earlier files there are deleted.

    :raises OSError: the folder cannot be written.
    :raises BackprobeError: a link of that name leads out of `folder`.
    """

    def __init__(self, folder: Path, texts: bool = True) -> None:
        self._texts = texts
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = inside(folder, FOLDER)
        self.folder.mkdir(exist_ok=True)
        for old in (*self.folder.glob("step-*.json.gz"), *self.folder.glob("*.safetensors")):
            old.unlink()
        self._sites: dict[Site, int] = {}

    def about(self, about: dict[str, object]) -> None:
        """Write the data about the run as a whole, such as versions."""
        replace_text(self.folder / "about.json", json.dumps({"format": FORMAT, **about}, default=str))

    def step(self, number: int, info: dict[str, object], ops: list[TapeOp], prints: list[Print]) -> None:
        """Write one step.

        :param info: the data about the step. `prints`: the fingerprints that are new since the step before.
        """
        new: list[list[object]] = []

        def site(of: Site | None) -> int | None:
            """Return the number of a line, adding it to the new lines of this step; ``None`` for ``None``."""
            if of is None:
                return None
            at = self._sites.get(of)
            if at is None:
                at = self._sites[of] = len(self._sites)
                new.append([without_home(of.file), of.line, of.function, masked_source(of.text) if self._texts else ""])
            return at

        rows = [
            [
                *(op.index, op.phase, op.name, op.module, op.call, site(op.site), site(op.inner), op.node),
                op.arguments,
                [[t.value, t.op, t.out, t.writer, t.name] for t in op.inputs],
                *(op.outputs, op.random, int(op.grad)),
            ]
            for op in ops
        ]
        table = [
            [p.shape, p.dtype, p.hash, p.norm, p.bad, base64.b64encode(array("d", p.sketch).tobytes()).decode()]
            for p in prints
        ]
        text = json.dumps({**info, "sites": new, "prints": table, "ops": rows}, default=str)
        with (
            replacing(self.folder / f"step-{number:06d}.json.gz") as part,
            gzip.open(part, "wt", compresslevel=1) as file,
        ):
            file.write(text)


def tape_folder(run: Path) -> Path:
    """Return the folder with the data for comparison: `run` itself if it has them, otherwise the one inside it."""
    return run if (run / "about.json").is_file() else inside(run, FOLDER)


def read_tape(run: Path) -> Tape:
    """Read the ops that a run recorded for comparison.

    :raises BackprobeError: the run recorded none, or they are damaged.
    """
    folder = tape_folder(run)
    if not (folder / "about.json").is_file():
        raise BackprobeError(
            f"{run} has nothing to compare: record it with backprobe run --record-ops --out {run} train.py"
        )
    try:
        about = json.loads(read_text(inside(folder, "about.json")))
        if about.pop("format") != FORMAT:
            raise BackprobeError(f"{folder} was written by another version of backprobe")
        sites: list[Site] = []
        prints: list[Print] = []
        ops: list[TapeOp] = []
        steps = []
        for path in sorted(folder.glob("step-*.json.gz")):
            data = json.loads(read_gzip(inside(folder, path.name), MAX_STEP_BYTES))
            sites += [Site(at_home(file), *rest) for file, *rest in data.pop("sites")]
            prints += [_print(row) for row in data.pop("prints")]
            ops += [_op(row, data["step"], sites) for row in data.pop("ops")]
            steps.append(data)
    except _DAMAGE as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise BackprobeError(f"{folder} is damaged: {why}") from None
    if not steps:
        raise BackprobeError(f"{folder} has no finished step to compare")
    return Tape(about, tuple(steps), steps[0].get("start", {}), tuple(ops), tuple(prints))


def _print(row: list[Any]) -> Print:
    """Decode a fingerprint of a tensor from its row in the file of a tape."""
    shape, dtype, digest, norm, bad, text = row
    sketch = array("d")
    sketch.frombytes(base64.b64decode(text))
    return Print(tuple(shape), dtype, digest, norm, bad, tuple(sketch))


def _op(row: list[Any], step: int, sites: list[Site]) -> TapeOp:
    """Decode an op of `step` from its row in the file of a tape; `sites` are the lines read so far."""
    index, phase, name, module, call, site, inner, node, arguments, inputs, outputs, random, grad = row
    return TapeOp(
        *(index, step, phase, name, module, call),
        *(sites[site] if site is not None else None, sites[inner] if inner is not None else None),
        node,
        arguments,
        tuple(Taken(*one) for one in inputs),
        tuple(outputs),
        random,
        bool(grad),
    )
