/** Layers against steps as a picture: where columns lie, what is in a cell, what is chosen. */

import { type Curve, normCurve, plainCurve } from "../../charts/marks";
import { median, symlog } from "../../charts/scale";
import type { Floats, LevelKind, Levels } from "../../data/document";
import type { Cells, Scale } from "../ranks/picture";

export type Kind = LevelKind<Floats>;
export type AllLevels = Levels<Floats, Int32Array>;

const NONE = -Infinity;

/** The axis: column `k` lies from `edges[k]` to `edges[k + 1]`, half of the way to its neighbours. */
export function edges(steps: ArrayLike<number>): Float64Array {
  const count = steps.length;
  const found = new Float64Array(count + 1);
  for (let k = 1; k < count; k++) found[k] = (steps[k - 1]! + steps[k]!) / 2;
  const half = (a: number, b: number): number => (count > 1 ? (steps[b]! - steps[a]!) / 2 : 0.5);
  found[0] = (steps[0] ?? 0) - half(0, 1);
  found[count] = (steps[count - 1] ?? 0) + half(count - 2, count - 1);
  return found;
}

/** The column whose step is nearest to `step`. */
export function columnAt(steps: ArrayLike<number>, step: number): number {
  let best = 0;
  for (let k = 1; k < steps.length; k++) {
    if (Math.abs(steps[k]! - step) < Math.abs(steps[best]! - step)) best = k;
  }
  return best;
}

/** NaN before what is worse: the greater one, or the lesser; what is not known last. */
export function worse(a: number, b: number, least: boolean): number {
  if (a === NONE || b === NONE) return a === NONE ? b : a;
  if (Number.isNaN(a) || Number.isNaN(b)) return NaN;
  return least ? Math.min(a, b) : Math.max(a, b);
}

/** At most `most` rows by `columns` pixels; neighbours that share one are put together. `place`: a step's pixel. */
export function raster(
  { names, values, least }: Kind,
  at: ArrayLike<number>,
  most: number,
  columns: number,
  place: (step: number) => number,
): Cells {
  const size = names.length;
  const rows = Math.min(most, size);
  const found = new Float64Array(rows * columns).fill(NONE);
  for (let k = 0; k + 1 < at.length; k++) {
    const [left, right] = [place(at[k]!), place(at[k + 1]!)];
    if (right <= 0 || left >= columns) continue;
    const from = Math.min(Math.max(Math.floor(left), 0), columns - 1);
    const to = Math.min(Math.max(Math.round(right), from + 1), columns);
    for (let n = 0; n < size; n++) {
      const value = values[k * size + n]!;
      const row = Math.floor((n * rows) / size) * columns;
      for (let x = from; x < to; x++) found[row + x] = worse(found[row + x]!, value, least);
    }
  }
  return { values: found, rows, columns };
}

/** How many times the size of the usual value the greatest is where colours are logarithmic to both sides of zero. */
const FAR = 30;

/** The colours: logarithmic where values are far apart; a zero is the least then where nothing is below it. */
export function scaleOf({ values }: Pick<Kind, "values">): Scale & { log: boolean } {
  let [low, high, above] = [Infinity, -Infinity, Infinity];
  for (const v of values) {
    if (!Number.isFinite(v)) continue;
    [low, high] = [Math.min(low, v), Math.max(high, v)];
    if (v > 0) above = Math.min(above, v);
  }
  if (low > high) [low, high] = [0, 1];
  if (low >= 0 && high > 4 * above) {
    const span = Math.log(high / above);
    return { low: above, high, log: true, place: (v) => (v > above ? Math.log(v / above) / span : 0) };
  }
  const usual = low < 0 ? middle(values) : 0;
  if (usual > 0 && Math.max(-low, high) > FAR * usual) {
    const [from, to] = [symlog(low, usual), symlog(high, usual)];
    return { low, high, log: false, place: (v) => (symlog(v, usual) - from) / (to - from) };
  }
  return { low, high, log: false, place: (v) => (high > low ? (v - low) / (high - low) : 0.5) };
}

/** Size of the value in the middle. */
function middle(values: ArrayLike<number>): number {
  const sizes: number[] = [];
  for (let i = 0; i < values.length; i++) if (Number.isFinite(values[i])) sizes.push(Math.abs(values[i]!));
  return median(sizes);
}

/** One layer over the columns. */
export function curveOf(kind: Kind, layer: number, log: boolean): Curve {
  const size = kind.names.length;
  const values = Float64Array.from(
    { length: size ? kind.values.length / size : 0 },
    (_, k) => kind.values[k * size + layer]!,
  );
  if (log) return normCurve(values.map((v) => (v === NONE ? -1 : v)));
  return plainCurve(values, (i) => values[i] !== NONE);
}

/** The layers that are named, in the order of their names; where none is: that of the first alarm, else the one to look
 *  at in the last column, of those with a bound where some have one. */
export function chosen(levels: AllLevels, kind: Kind, named: string | undefined, most: number): number[] {
  const found = (named ?? "")
    .split(",")
    .map((name) => kind.names.indexOf(name))
    .filter((n) => n >= 0);
  if (found.length > 0 || named === "none") return [...new Set(found)].slice(0, most);
  const alarm = levels.alarms.find((one) => one.quantity === kind.quantity);
  if (alarm) return [kind.names.indexOf(alarm.name)].filter((n) => n >= 0);
  const size = kind.names.length;
  const bounded = kind.bound.some((v) => v !== NONE);
  let best = -1;
  for (let k = levels.steps.length - 1; k >= 0 && best < 0; k--) {
    for (let n = 0; n < size; n++) {
      const value = kind.values[k * size + n]!;
      if (value === NONE || (bounded && kind.bound[n] === NONE)) continue;
      const now = best < 0 ? NONE : kind.values[k * size + best]!;
      if (now === NONE || (Number.isNaN(value) && !Number.isNaN(now)) || (kind.least ? value < now : value > now))
        best = n;
    }
  }
  return best < 0 ? [] : [best];
}

/** The kind that is shown: the one that is named, else that of the first alarm, else the first of those to look at. */
export function kindOf(levels: AllLevels, named: string | undefined): Kind {
  const by = (quantity: string | undefined): Kind | undefined => levels.kinds.find((one) => one.quantity === quantity);
  return by(named) ?? by(levels.alarms[0]?.quantity) ?? by("update_ratio") ?? by("activation_rms") ?? levels.kinds[0]!;
}

/** "Each column is 4 looks that follow one another, with the greatest of them." */
export function thinned({ looks, width }: AllLevels, kind: Kind): string {
  if (width === 1) return "";
  return `Of ${looks.toLocaleString("en-US")} looks, each point is ${width} that follow one another, with the ${kind.least ? "least" : "greatest"} of them.`;
}

/** Names without the parts at the end that all of them have: what tells rows apart. */
export function apart(names: readonly string[]): string[] {
  const parts = names.map((name) => name.split("."));
  let shared = 0;
  const least = Math.min(...parts.map((one) => one.length));
  while (
    names.length > 1 &&
    shared + 1 < least &&
    parts.every((one) => one.at(-1 - shared) === parts[0]!.at(-1 - shared))
  )
    shared++;
  return parts.map((one) => one.slice(0, one.length - shared).join("."));
}
