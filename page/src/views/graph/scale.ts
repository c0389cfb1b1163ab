import { bytes, number, seconds } from "../../parts/words";
import type { Metric, Metrics } from "./metrics";

/** Viridis (Smith and van der Walt, 2015): dark to light, even in lightness, for all kinds of colour vision. */
const RAMP = [
  "#440154",
  "#482878",
  "#3e4989",
  "#31688e",
  "#26828e",
  "#1f9e89",
  "#35b779",
  "#6ece58",
  "#b5de2b",
  "#fde725",
];

export interface Scale {
  metric: Metric;
  low: number;
  high: number;
  log: boolean;
  /** There are values below `low`: they look like it. */
  below: boolean;
}

/** What a box's metric looks like: a place on the scale, or one of the states that a scale has no place for. */
export type Look = { kind: "on"; at: number } | { kind: "zero" | "bad" | "began" | "unknown" };

/** From the least to the greatest value of any box. */
export function scaleOf(metrics: Metrics, metric: Metric): Scale {
  let low = Infinity;
  let high = 0;
  const take = (value: number): void => {
    if (!(value > 0) || !Number.isFinite(value)) return;
    low = Math.min(low, value);
    high = Math.max(high, value);
  };
  metrics.h.groups.forEach((_, id) => id > 0 && take(metrics.value(metric, id)));
  for (let node = 0; node < metrics.h.sequence.length; node++) take(metrics.value(metric, ~node));
  if (high === 0) return { metric, low: 0, high: 0, log: false, below: false };
  if (metric === "order") return { metric, low: 0, high, log: false, below: false };
  return { metric, low: Math.max(low, high * 1e-12), high, log: true, below: low < high * 1e-12 };
}

export function look(scale: Scale, value: number): Look {
  if (Number.isNaN(value) || value === Infinity) return { kind: "bad" };
  if (value < 0) return { kind: "unknown" };
  if (value === 0 && scale.metric !== "order") return { kind: "zero" };
  if (scale.high <= scale.low) return { kind: "on", at: 1 };
  const at = scale.log
    ? Math.log(value / scale.low) / Math.log(scale.high / scale.low)
    : (value - scale.low) / (scale.high - scale.low);
  return { kind: "on", at: Math.min(1, Math.max(0, at)) };
}

/** Colour at a place from 0 to 1. */
export function colour(at: number): string {
  const [r, g, b] = mix(at);
  return `rgb(${r},${g},${b})`;
}

/** Ink that can be read on it. */
export function inkOn(at: number): string {
  const [r, g, b] = mix(at).map((c) => (c / 255) ** 2.2) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

function mix(at: number): [number, number, number] {
  const place = Math.min(1, Math.max(0, at)) * (RAMP.length - 1);
  const k = Math.min(RAMP.length - 2, Math.floor(place));
  const part = (c: number): number => {
    const [a, b] = [RAMP[k]!, RAMP[k + 1]!].map((hex) => Number.parseInt(hex.slice(1 + 2 * c, 3 + 2 * c), 16));
    return Math.round(a! + (b! - a!) * (place - k));
  };
  return [part(0), part(1), part(2)];
}

/** A value in the unit of its metric. */
export function said(metric: Metric, value: number): string {
  if (value < 0) return "–";
  if (metric === "time") return seconds(value);
  if (metric === "bytes") return bytes(value);
  if (metric === "order") return `#${value + 1}`;
  return number(value);
}

/** Values at even places of the scale, for its legend. */
export function ticks(scale: Scale, count = 4): { at: number; value: number }[] {
  if (scale.high <= scale.low) return scale.high > 0 ? [{ at: 1, value: scale.high }] : [];
  return Array.from({ length: count }, (_, k) => {
    const at = k / (count - 1);
    const value = scale.log ? scale.low * (scale.high / scale.low) ** at : scale.low + (scale.high - scale.low) * at;
    return { at, value: scale.metric === "order" ? Math.round(value) : value };
  });
}
