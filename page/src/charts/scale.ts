/** From values to places, and what a value is that has no place on a logarithmic axis. */

/** What a norm is: a positive number, exactly zero, not finite, or not measured (-1). */
export type Sort = "number" | "zero" | "nan" | "inf" | "missing";

export function sortOf(norm: number | undefined): Sort {
  if (norm === undefined || norm < 0) return "missing";
  if (Number.isNaN(norm)) return "nan";
  if (norm === Infinity) return "inf";
  return norm === 0 ? "zero" : "number";
}

/** The sign and the word of a value that has no place on the axis. Shapes, so that colour is not needed. */
export const SIGNS: Readonly<Record<Exclude<Sort, "number">, { sign: string; word: string }>> = {
  nan: { sign: "✕", word: "NaN" },
  inf: { sign: "▲", word: "Inf" },
  zero: { sign: "○", word: "exactly zero" },
  missing: { sign: "–", word: "not measured" },
};

export interface Extent {
  low: number;
  high: number;
}

/** Least and greatest positive finite value, or null where there is none. */
export function positiveExtent(...columns: ArrayLike<number>[]): Extent | null {
  let low = Infinity;
  let high = 0;
  for (const values of columns) {
    for (let i = 0; i < values.length; i++) {
      const v = values[i]!;
      if (!(v > 0) || v === Infinity) continue;
      if (v < low) low = v;
      if (v > high) high = v;
    }
  }
  return high > 0 ? { low, high } : null;
}

/** Least and greatest finite value, or null. */
export function finiteExtent(values: ArrayLike<number>): Extent | null {
  let low = Infinity;
  let high = -Infinity;
  for (let i = 0; i < values.length; i++) {
    const v = values[i]!;
    if (!Number.isFinite(v)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return high >= low ? { low, high } : null;
}

/** An extent with room around it on a logarithmic axis: at least half a decade high. */
export function roomy(extent: Extent, share = 0.06): Extent {
  const low = Math.log10(extent.low);
  const high = Math.log10(extent.high);
  const pad = Math.max((high - low) * share, (0.5 - (high - low)) / 2, 0.02);
  return { low: 10 ** Math.max(low - pad, -323), high: 10 ** Math.min(high + pad, 308) };
}

/** Place of a positive number between `from` (at `extent.low`) and `to` (at `extent.high`). */
export function logPlace(extent: Extent, from: number, to: number): (value: number) => number {
  const low = Math.log10(extent.low);
  const span = Math.log10(extent.high) - low || 1;
  return (value) => from + ((Math.log10(value) - low) / span) * (to - from);
}

/** Symmetric logarithm: linear inside about `threshold`, logarithmic outside, odd. */
export function symlog(value: number, threshold: number): number {
  return Math.asinh(value / threshold / 2);
}

export function symlogInverse(place: number, threshold: number): number {
  return 2 * threshold * Math.sinh(place);
}

/** Middle value; NaN of none. Sorts its argument. */
export function median(values: number[] | Float64Array): number {
  const n = values.length;
  if (n === 0) return NaN;
  if (Array.isArray(values)) values.sort((a, b) => a - b);
  else values.sort();
  return n % 2 ? values[(n - 1) / 2]! : (values[n / 2 - 1]! + values[n / 2]!) / 2;
}

/** The axis of the steps `from` to `to` on so many pixels: half a step more on both sides, and at least the room of a
 *  sign, so that the last step is seen as well as any other. */
export function padded(from: number, to: number, pixels: number): [number, number] {
  const pad = Math.max(0.5, ((to - from) * 4) / Math.max(1, pixels));
  return [from - pad, to + pad];
}
