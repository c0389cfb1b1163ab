"""A curve in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
#: Characters for terminals that show only ASCII.
SIGNS = "_.-:=+*#"
#: Ratio of the largest to the smallest value above which a curve is logarithmic.
MIN_LOG_RATIO = 20.0


def spark(values: Sequence[float], width: int, signs: str = BLOCKS) -> str:
    """Return a curve of at most `width` characters, from the smallest finite value to the largest.

    It is logarithmic if the values are positive and far apart. Neighbours that share a character are averaged. ``!``
    stands for an infinite value; NaN, which also stands for missing values, is left out.
    """
    known = [v for v in values if v == v]
    if not known or width < 1:
        return ""
    count = min(width, len(known))
    parts = [known[i * len(known) // count : (i + 1) * len(known) // count] for i in range(count)]
    means = [sum(part) / len(part) for part in parts]
    finite = [v for v in means if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    far = low > 0 and high > MIN_LOG_RATIO * low
    places = [math.log(v / low) if far else v - low for v in means if math.isfinite(v)]
    span, place = max(places, default=0.0), iter(places)
    return "".join(
        signs[min(int(next(place) / (span or 1.0) * len(signs)), len(signs) - 1)] if math.isfinite(mean) else "!"
        for mean in means
    )
