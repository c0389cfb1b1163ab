"""A curve in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
#: Where a terminal shows ASCII only.
SIGNS = "_.-:=+*#"
#: How many times the least value the greatest is where the curve is logarithmic.
FAR = 20.0


def spark(values: Sequence[float], width: int, signs: str = BLOCKS) -> str:
    """At most `width` signs, from the least finite value to the greatest, logarithmic where these are far apart and
    above zero; where neighbours share one it is that of their mean. ``!`` where one is infinite; NaN, which stands for
    what was not measured too, is left out."""
    known = [v for v in values if v == v]
    if not known or width < 1:
        return ""
    count = min(width, len(known))
    parts = [known[i * len(known) // count : (i + 1) * len(known) // count] for i in range(count)]
    means = [sum(part) / len(part) for part in parts]
    finite = [v for v in means if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    far = low > 0 and high > FAR * low
    places = [math.log(v / low) if far else v - low for v in means if math.isfinite(v)]
    span, place = max(places, default=0.0), iter(places)
    return "".join(
        signs[min(int(next(place) / (span or 1.0) * len(signs)), len(signs) - 1)] if math.isfinite(mean) else "!"
        for mean in means
    )
