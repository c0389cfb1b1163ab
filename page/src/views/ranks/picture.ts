/** Ranks against steps as a picture: what lies in a cell, and how far that is from the other ranks. */

import { diverging, sequential } from "../../charts/colour";
import { median } from "../../charts/scale";
import type { Floats, RankPictures } from "../../data/document";
import { worse } from "../steps/heat";

export type Metric = "seconds" | "gradient" | "loss";

export interface Cells {
  /** By row and then column; -Infinity: not known. */
  values: Float64Array;
  rows: number;
  columns: number;
}

/** At most `most` columns, by rank and column: neighbours are put together, the greatest wins, and NaN before all. */
export function cells(pictures: RankPictures<Floats>, metric: Metric, most: number): Cells {
  const rows = pictures.ranks.length;
  const columns = Math.max(1, Math.min(pictures.count, most));
  const values = new Float64Array(rows * columns).fill(-Infinity);
  for (let k = 0; k < pictures.count; k++) {
    const column = Math.floor((k * columns) / pictures.count);
    for (let r = 0; r < rows; r++) {
      const at = r * columns + column;
      values[at] = worse(values[at]!, pictures[metric][k * rows + r]!);
    }
  }
  return { values, rows, columns };
}

/** How far each cell is from the middle of its column: times it (as a power of two), or plus, where `ratio` is false. */
export function apart({ values, rows, columns }: Cells, ratio: boolean): Cells {
  const found = new Float64Array(values);
  for (let c = 0; c < columns; c++) {
    const known: number[] = [];
    for (let r = 0; r < rows; r++) {
      const v = values[r * columns + c]!;
      if (Number.isFinite(v)) known.push(v);
    }
    const middle = known.length > 0 ? median(known) : NaN;
    for (let r = 0; r < rows; r++) {
      const at = r * columns + c;
      const v = values[at]!;
      if (!Number.isFinite(v)) continue;
      if (!ratio) found[at] = v - middle;
      else found[at] = v === middle ? 0 : v > 0 && middle > 0 ? Math.log2(v / middle) : -Infinity;
    }
  }
  return { values: found, rows, columns };
}

export interface Scale {
  low: number;
  high: number;
  /** Where a value lies, from 0 to 1; from -1 to 1 where what differs is shown. */
  place: (value: number) => number;
}

/** From the least to the greatest; logarithmic where all are above zero and far apart. */
export function plainScale({ values }: Cells): Scale {
  let [low, high] = [Infinity, -Infinity];
  for (const v of values) if (Number.isFinite(v)) [low, high] = [Math.min(low, v), Math.max(high, v)];
  if (low > high) [low, high] = [0, 1];
  if (low > 0 && high > 4 * low) {
    const [from, span] = [Math.log(low), Math.log(high / low)];
    return { low, high, place: (v) => (Math.log(v) - from) / span };
  }
  return { low, high, place: (v) => (high > low ? (v - low) / (high - low) : 0.5) };
}

/** The same to both sides of zero, and no wider than `least` where all are alike. */
export function evenScale({ values }: Cells, least: number): Scale {
  let high = least;
  for (const v of values) if (Number.isFinite(v)) high = Math.max(high, Math.abs(v));
  return { low: -high, high, place: (v) => v / high };
}

/** Cells as RGBA; what is not known is clear. */
export function paint(
  { values }: Cells,
  scale: Scale,
  differs: boolean,
  bad: readonly [number, number, number],
): Uint8ClampedArray<ArrayBuffer> {
  const out = new Uint8ClampedArray(values.length * 4);
  for (let i = 0; i < values.length; i++) {
    const v = values[i]!;
    if (v === -Infinity) continue;
    const [r, g, b] = !Number.isFinite(v) ? bad : differs ? diverging(scale.place(v)) : sequential(scale.place(v));
    out.set([r, g, b, 255], 4 * i);
  }
  return out;
}

/** The steps of a column, [first, last]. */
export function stepsOf({ width, count }: RankPictures<Floats>, column: number, columns: number): [number, number] {
  const first = Math.ceil((column * count) / columns);
  const last = Math.ceil(((column + 1) * count) / columns) - 1;
  return [first * width, (Math.max(first, last) + 1) * width - 1];
}
