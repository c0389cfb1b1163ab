"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import InvertedMask

MASK = InvertedMask("multi_head_attention_forward", "encoder", at(11), at(12), 0, 96, 2, 3)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"mask-inverted": (traced(STEP, seen=[MASK]), [("cause", 11), ("masked", 12)])}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_line_that_makes_the_mask_comes_first() -> None:
    found = only(traced(STEP, seen=[MASK]))
    assert (found.kind, found.confidence, found.module, found.step) == ("mask-inverted", "certain", "encoder", 3)
    assert [(one.role, one.site) for one in found.sites] == [("cause", at(11)), ("masked", at(12))]
    assert "hides all tokens and leaves the padding (id 0) visible, in all 96 sequences" in found.title


@pytest.mark.parametrize(
    ("op", "meaning"),
    [
        ("multi_head_attention_forward", "ignore the positions where key_padding_mask is True"),
        ("scaled_dot_product_attention", "attends to positions where a boolean attn_mask is True"),
        ("masked_fill", "writes its value where the mask is True"),
    ],
)
def test_a_mask_from_elsewhere_is_named_at_its_use(op: str, meaning: str) -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(MASK, op=op, made=None)]))
    assert [(one.role, one.site) for one in found.sites] == [("masked", at(12))]
    assert meaning in (found.advice or "")
