/** Where something began: steps that a person wants to jump to. */

import { median } from "../../charts/scale";
import type { Decoded } from "../../data/document";
import { number } from "../../parts/words";

export interface Event {
  kind: "nonfinite" | "jump" | "zero";
  /** Number of the step. */
  step: number;
  title: string;
}

/** Steps before one that its norm is compared with, and how many of them must be known. */
const WINDOW = 20;
const LEAST = 5;
/** A smaller growth is not called a jump. */
const JUMP = 3;

/**
 * The position where a norm is greatest against the median of the `WINDOW` measured ones before it, and how many times as great;
 * null where no norm has `LEAST` of them before it, or all medians are zero.
 */
export function greatestJump(norms: ArrayLike<number>): { position: number; times: number } | null {
  const before: number[] = [];
  let best: { position: number; times: number } | null = null;
  for (let i = 0; i < norms.length; i++) {
    const norm = norms[i]!;
    if (!(norm >= 0) || norm === Infinity) continue;
    if (before.length >= LEAST) {
      const middle = median([...before]);
      if (middle > 0 && (!best || norm / middle > best.times)) best = { position: i, times: norm / middle };
    }
    before.push(norm);
    if (before.length > WINDOW) before.shift();
  }
  return best;
}

/** The first position where a column is not finite, among those that were measured. */
export function firstNonfinite(values: ArrayLike<number>, known: (i: number) => boolean): number {
  for (let i = 0; i < values.length; i++) if (known(i) && !Number.isFinite(values[i]!)) return i;
  return -1;
}

/** What to jump to, in the order of the steps. */
export function events({ steps }: Decoded): Event[] {
  const { index, loss, known, gradient } = steps;
  const found: Event[] = [];
  const bad = [
    ["loss", firstNonfinite(loss, (i) => known[i] === 1)],
    ["gradient", firstNonfinite(gradient, (i) => !(gradient[i]! < 0))],
  ] as const;
  const first = bad.filter(([, i]) => i >= 0).sort((a, b) => a[1] - b[1])[0];
  if (first) {
    const both = bad.every(([, i]) => i === first[1]);
    found.push({
      kind: "nonfinite",
      step: index[first[1]]!,
      title: both ? "Loss and gradient first not finite" : `First ${first[0]} that is not finite`,
    });
  }
  const jump = greatestJump(gradient);
  if (jump && jump.times >= JUMP)
    found.push({
      kind: "jump",
      step: index[jump.position]!,
      title: `Largest jump of the gradient, ${number(jump.times)} times`,
    });
  const zero = gradient.indexOf(0);
  if (zero >= 0) found.push({ kind: "zero", step: index[zero]!, title: "First gradient that is exactly zero" });
  return found.sort((a, b) => a.step - b.step);
}

/** The nearest range of steps around one: a twentieth of all, at least 20. */
export function around(step: number, first: number, last: number): [number, number] {
  const half = Math.max(10, Math.round((last - first) / 40));
  return [Math.max(first, step - half), Math.min(last, step + half)];
}
