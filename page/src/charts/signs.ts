import type uPlot from "uplot";
import type { Palette } from "./colour";
import type { Curve } from "./marks";
import { SIGNS } from "./scale";

/** Something that began at a place: drawn as a flag, and picked by a click. */
export interface Marker {
  x: number;
  name: string;
  severity: "error" | "warning" | "info";
  /** A flag without it. */
  sign?: string;
  onPick: () => void;
}

type Sign = keyof typeof SIGNS;

interface Word {
  x: number;
  y: number;
  zero: boolean;
  word: string;
}

/** Words from left to right. Those nearer than `width` are joined, so that none is printed over another. */
export function together(words: readonly Word[], width: number): Word[] {
  const found: Word[] = [];
  for (const one of words.toSorted((a, b) => a.x - b.x)) {
    const before = found.findLast((other) => other.zero === one.zero && one.x - other.x < width);
    if (before) before.word += `, ${one.word}`;
    else found.push({ ...one });
  }
  return found;
}

interface Shown {
  x: ArrayLike<number>;
  series: readonly { curve: Curve; colour: (palette: Palette) => string }[];
  markers?: readonly Marker[];
}

/** What has no place on the axes: bars with a sign at the top (not finite) or at the bottom (zero), and flags of findings. */
export function signs(u: uPlot, { x, series, markers }: Shown, colours: Palette): void {
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio || 1;
  const [left, right] = [bbox.left, bbox.left + bbox.width];
  ctx.save();
  ctx.font = `${10 * ratio}px ${colours.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  for (const marker of markers ?? []) {
    const at = Math.round(u.valToPos(marker.x, "x", true)) + 0.5;
    if (at < left || at > right) continue;
    ctx.strokeStyle = ctx.fillStyle =
      marker.severity === "error" ? colours.bad : marker.severity === "warning" ? colours.warn : colours.accent;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    // Below, so that it and the flag of a finding of the same step are both seen.
    if (marker.sign) ctx.fillText(marker.sign, at, bbox.top + bbox.height - 4 * ratio);
    else ctx.fillText("⚑", at, bbox.top - 6 * ratio);
  }
  ctx.setLineDash([]);
  // One word for each kind of sign, beside the first of its kind.
  const begins = new Map<string, { x: number; y: number }>();
  series.forEach((s, k) => {
    for (const stretch of s.curve.stretches) {
      const from = u.valToPos(x[stretch.first]!, "x", true);
      const a = Math.max(left, from);
      const b = Math.min(right, u.valToPos(x[stretch.last]!, "x", true));
      if (b < left || a > right) continue;
      const up = stretch.sort !== "zero";
      const y = up ? bbox.top + (4 + 7 * k) * ratio : bbox.top + bbox.height - (4 + 7 * k) * ratio;
      ctx.fillStyle = s.colour(colours);
      ctx.fillRect(a, y - ratio, Math.max(b - a, ratio), 2 * ratio);
      ctx.fillStyle = up ? colours.bad : colours.warn;
      ctx.fillText(SIGNS[stretch.sort].sign, a, y);
      const before = begins.get(stretch.sort);
      if (!before || a < before.x) begins.set(stretch.sort, { x: a, y });
    }
  });
  const words = [...begins].map(([sort, at]) => ({ ...at, zero: sort === "zero", word: SIGNS[sort as Sign].word }));
  for (const { x: from, y, zero, word } of together(words, 44 * ratio)) {
    const room = from - left > 80 * ratio;
    ctx.fillStyle = zero ? colours.warn : colours.bad;
    ctx.textAlign = room ? "right" : "left";
    ctx.fillText(word, from + (room ? -8 : 8) * ratio, y + (room ? 0 : zero ? -9 : 9) * ratio);
  }
  ctx.restore();
}
