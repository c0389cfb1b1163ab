/** What the flow chart draws: by parameter or by module, the values of one step or the band over several. */

import { median } from "../../charts/scale";
import type { Decoded, Floats, Series } from "../../data/document";
import { nearest } from "../../data/step";

export type Metric = "gradient" | "weight" | "update" | "ratio";
export const METRICS: readonly Metric[] = ["gradient", "weight", "update", "ratio"];

type Named = Series<Floats, Int32Array>;

/** Values by item; in a band the least, the middle and the greatest, else all three are the same array. */
export interface Band {
  low: Float64Array;
  middle: Float64Array;
  high: Float64Array;
}

/** The bucket that covers the step at `position` of `steps.index`. */
export function bucketOf(start: Int32Array, position: number): number {
  let [low, high] = [0, start.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle]! <= position) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

/** Position of a step by its number: its own, else of the last one before it. */
export function positionOf(index: Int32Array, step: number): number {
  return index.length === 0 ? -1 : bucketOf(index, step);
}

/** Least and greatest value of a parameter in a bucket. Update to weight: the widest that the two allow. */
export function valueAt(series: Named, metric: Metric, parameter: number, bucket: number): [number, number] {
  const at = bucket * series.size + parameter;
  if (metric !== "ratio") {
    const high = series[metric].high[at] ?? -1;
    return [series.exact ? high : (series[metric].low[at] ?? -1), high];
  }
  const [updateLow, updateHigh] = valueAt(series, "update", parameter, bucket);
  const [weightLow, weightHigh] = valueAt(series, "weight", parameter, bucket);
  return [quotient(updateLow, weightHigh), quotient(updateHigh, weightLow)];
}

function quotient(update: number, weight: number): number {
  // A weight that is zero has no ratio; a NaN in either says itself.
  return update < 0 || weight < 0 || weight === 0 ? -1 : update / weight;
}

/**
 * By parameter, the values of `metric` over the buckets `first` to `last` (both in). A value that is not finite makes
 * `high` so and stays out of the others; with none measured all three are -1.
 */
export function parameterBand(doc: Decoded, metric: Metric, first: number, last: number): Band {
  const series = doc.steps.series;
  const count = doc.parameters.length;
  const band: Band = {
    low: new Float64Array(count).fill(-1),
    middle: new Float64Array(count).fill(-1),
    high: new Float64Array(count).fill(-1),
  };
  if (series.start.length === 0) return band;
  const middles: number[] = [];
  for (let p = 0; p < count; p++) {
    let [least, greatest, bad] = [Infinity, -1, 0];
    middles.length = 0;
    for (let k = first; k <= last; k++) {
      const [low, high] = valueAt(series, metric, p, k);
      if (!Number.isFinite(high)) bad = high;
      else if (high > greatest) greatest = high;
      if (low >= 0 && low < least) least = low;
      if (high >= 0 && high < Infinity) middles.push(low >= 0 && low < Infinity ? (low + high) / 2 : high);
      else if (low >= 0 && low < Infinity) middles.push(low);
    }
    band.high[p] = bad !== 0 ? bad : greatest;
    band.low[p] = least < Infinity ? least : band.high[p]!;
    band.middle[p] = middles.length ? median(middles) : band.high[p]!;
  }
  return band;
}

/** One parameter's values over all buckets. */
export function parameterCurve(
  doc: Decoded,
  metric: Metric,
  parameter: number,
): { low: Float64Array; high: Float64Array } {
  const series = doc.steps.series;
  const n = series.start.length;
  const curve = { low: new Float64Array(n), high: new Float64Array(n) };
  for (let k = 0; k < n; k++) [curve.low[k], curve.high[k]] = valueAt(series, metric, parameter, k) as [number, number];
  return curve;
}

/** The first step in which a parameter's gradient was not finite, and the first in which it was exactly zero; -1: never. */
export function beginnings(doc: Decoded, parameter: number): { nonfinite: number; zero: number } {
  const { start, size, exact, gradient } = doc.steps.series;
  let [nonfinite, zero] = [-1, -1];
  for (let k = 0; k < start.length; k++) {
    const at = k * size + parameter;
    const high = gradient.high[at]!;
    const low = exact ? high : gradient.low[at]!;
    if (nonfinite < 0 && !Number.isFinite(high)) nonfinite = doc.steps.index[start[k]!]!;
    if (zero < 0 && low === 0) zero = doc.steps.index[start[k]!]!;
    if (nonfinite >= 0 && zero >= 0) break;
  }
  return { nonfinite, zero };
}

/** What a person should know of a parameter that its norms do not say, in words. A run may have its gradients and no count of them. */
export function condition(parameter: Decoded["parameters"][number], hasGradient: boolean): string {
  if (!parameter.requires_grad) return "frozen";
  if (parameter.reached === 0 && !hasGradient) return "never reached";
  if (parameter.trained === false) return "not in the optimizer";
  return parameter.free ? "on no module" : "";
}

/** The step nearest to `step` in which a norm of any parameter was measured: most levels measure only now and then; -1: none. */
export function measuredStep({ steps }: Pick<Decoded, "steps">, metric: Metric, step: number): number {
  // A ratio that is not a number has no median, and was measured.
  const of = metric === "ratio" ? [steps.update, steps.weight] : [steps[metric]];
  return steps.index[nearest(steps.index, step, (i) => of.every((norms) => !(norms[i]! < 0)))] ?? -1;
}
