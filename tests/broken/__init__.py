"""Scripts with one mistake each, a module for each subject."""

from __future__ import annotations

from broken import checkpoints, functions, graphs, hooks, missing, sizes, untrained, values, writes

PARTS = (checkpoints, functions, graphs, hooks, missing, sizes, untrained, values, writes)

#: What is in the tables of all of them.
BROKEN = {name: script for part in PARTS for name, script in part.BROKEN.items()}
assert len(BROKEN) == sum(len(part.BROKEN) for part in PARTS), "two scripts have one name"
