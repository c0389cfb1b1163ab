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

/** At most `rows` by `columns` cells of the buckets `first` to `last`: what is smaller than a pixel is put together. */
export function cells(
  matrix: Float32Array,
  buckets: number,
  parameters: number,
  first: number,
  last: number,
  rows: number,
  columns: number,
): Cells {
  const [height, width] = [Math.min(rows, parameters), Math.min(columns, Math.max(0, last - first))];
  const values = new Float32Array(height * width).fill(-1);
  for (let p = 0; p < parameters; p++) {
    const row = Math.floor((p * height) / parameters) * width;
    for (let k = first; k < last; k++) {
      const at = row + Math.floor(((k - first) * width) / (last - first));
      values[at] = worse(values[at]!, matrix[p * buckets + k]!);
    }
  }
  return { values, rows: height, columns: width };
}

/** NaN before infinity before what is greater. */
function worse(a: number, b: number): number {
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
