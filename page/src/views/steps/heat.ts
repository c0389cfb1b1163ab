/** Parameters against steps as a picture: its pixels, and what lies under one. */

import { sequential } from "../../charts/colour";
import { type Extent, positiveExtent } from "../../charts/scale";
import type { Decoded } from "../../data/document";
import type { Metric } from "../flow/values";

/** Norms by parameter and bucket; update to weight from the greatest of each. */
export function matrix(doc: Decoded, metric: Metric): Float32Array {
  const { series } = doc.steps;
  if (metric !== "ratio") return Float32Array.from(series[metric].high);
  const [update, weight] = [series.update.high, series.weight.high];
  return Float32Array.from(update, (u, i) => (u < 0 || weight[i]! < 0 || weight[i] === 0 ? -1 : u / weight[i]!));
}

/** The bucket range that lies in the steps `from` to `to`: [first, last + 1]. */
export function seenBuckets(start: Int32Array, index: Int32Array, from: number, to: number): [number, number] {
  let first = 0;
  while (first + 1 < start.length && index[start[first + 1]!]! <= from) first++;
  let last = first + 1;
  while (last < start.length && index[start[last]!]! <= to) last++;
  return [first, Math.max(last, Math.min(first + 1, start.length))];
}

export interface Cells {
  /** By row and column: the greatest norm of what the cell covers; NaN and infinity win; -1: nothing measured. */
  values: Float32Array;
  rows: number;
  columns: number;
}

/** The steps that a bucket covers, on the axis: half a step more on both sides. */
export function covered({ index, series }: Decoded["steps"], k: number): [number, number] {
  const next = k + 1 < series.start.length ? series.start[k + 1]! : index.length;
  return [index[series.start[k]!]! - 0.5, index[next - 1]! + 0.5];
}

/**
 * At most `rows` by `columns` cells of the buckets `first` to `last`: what is smaller than a pixel is put together.
 * `place` says which column a place on the axis falls into; every bucket has one at least.
 */
export function cells(
  matrix: Float32Array,
  steps: Decoded["steps"],
  [first, last]: readonly [number, number],
  rows: number,
  columns: number,
  place: (step: number) => number,
): Cells {
  const parameters = matrix.length > 0 ? steps.series.size : 0;
  const height = Math.min(rows, parameters);
  const values = new Float32Array(height * columns).fill(-1);
  for (let k = first; k < last; k++) {
    const [left, right] = covered(steps, k);
    const from = Math.min(Math.max(Math.floor(place(left)), 0), columns - 1);
    const to = Math.min(Math.max(Math.round(place(right)), from + 1), columns);
    for (let p = 0; p < parameters; p++) {
      const row = Math.floor((p * height) / parameters) * columns;
      const value = matrix[k * parameters + p]!;
      for (let at = row + from; at < row + to; at++) values[at] = worse(values[at]!, value);
    }
  }
  return { values, rows: height, columns };
}

/** NaN before infinity before what is greater. */
export function worse(a: number, b: number): number {
  return Number.isNaN(a) || Number.isNaN(b) ? NaN : Math.max(a, b);
}

export interface HeatColours {
  bad: readonly [number, number, number];
  zero: readonly [number, number, number];
}

/** Cells as RGBA, logarithmic between the ends of `extent`; what was not measured is clear. */
export function paint({ values }: Cells, extent: Extent, colours: HeatColours): Uint8ClampedArray<ArrayBuffer> {
  const out = new Uint8ClampedArray(values.length * 4);
  const low = Math.log(extent.low);
  const span = Math.log(extent.high) - low || 1;
  for (let i = 0; i < values.length; i++) {
    const v = values[i]!;
    if (v < 0) continue;
    const [r, g, b] =
      v === 0 ? colours.zero : Number.isFinite(v) ? sequential((Math.log(v) - low) / span) : colours.bad;
    out[4 * i] = r;
    out[4 * i + 1] = g;
    out[4 * i + 2] = b;
    out[4 * i + 3] = 255;
  }
  return out;
}

export function extentOf(matrix: Float32Array): Extent {
  return positiveExtent(matrix) ?? { low: 0.1, high: 10 };
}
