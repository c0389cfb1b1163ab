/** Captured tensors put together by what they are of, and their numbers. */

import { symlog, symlogInverse } from "../../charts/scale";
import { linearTicks } from "../../charts/ticks";
import type { Floats, Tensor } from "../../data/document";

export type Captured = Tensor<Floats>;

export interface Group {
  /** Names it in the address. */
  key: string;
  name: string;
  kind: string;
  module: number;
  /** In the order of their steps. */
  tensors: Captured[];
}

/** One group for each name and kind, in the order in which they first come. */
export function groups(tensors: readonly Captured[]): Group[] {
  const found = new Map<string, Group>();
  for (const tensor of tensors) {
    const key = `${tensor.kind}:${tensor.name}`;
    const group = found.get(key) ?? { key, name: tensor.name, kind: tensor.kind, module: tensor.module, tensors: [] };
    found.set(key, group);
    group.tensors.push(tensor);
  }
  for (const group of found.values()) group.tensors.sort((a, b) => a.step - b.step);
  return [...found.values()];
}

/** Where the axis goes over from linear to logarithmic: the least edge that is not zero, but not below a millionth of the greatest. */
export function threshold(tensors: readonly Captured[]): number {
  let [least, greatest] = [Infinity, 0];
  for (const { edges } of tensors) {
    for (const edge of edges) {
      const size = Math.abs(edge);
      if (size > 0 && Number.isFinite(size)) {
        if (size < least) least = size;
        if (size > greatest) greatest = size;
      }
    }
  }
  return greatest > 0 ? Math.max(least, greatest * 1e-6) : 1;
}

export interface Bars {
  /** Places of the edges on the axis. */
  edges: Float64Array;
  /** Share of the values by width on the axis: the area is what counts, as bins differ in width. */
  heights: Float64Array;
}

/** Places of values on an axis, linear or symmetrically logarithmic, and its ticks no nearer than `gap`. */
export interface Axis {
  place: (value: number) => number;
  value: (place: number) => number;
  ticks: (low: number, high: number, gap: number) => number[];
}

export const LINEAR: Axis = {
  place: (value) => value,
  value: (place) => place,
  ticks: (low, high, gap) => linearTicks(low, high, Math.max(1, Math.floor((high - low) / gap))),
};

export function symlogAxis(at: number): Axis {
  return {
    place: (value) => symlog(value, at),
    value: (place) => symlogInverse(place, at),
    ticks: (low, high, gap) => symlogTicks(low, high, at, gap),
  };
}

/** A histogram as bars on an axis. */
export function bars({ edges, counts }: Captured, axis: Axis): Bars {
  const places = Float64Array.from(edges, axis.place);
  let total = 0;
  for (const c of counts) total += c;
  const heights = Float64Array.from(counts, (c, i) => {
    const width = places[i + 1]! - places[i]!;
    return total > 0 && width > 0 ? c / total / width : 0;
  });
  return { edges: places, heights };
}

/**
 * Ticks of the symmetric logarithmic axis between two values: zero and powers of ten on both sides, no two nearer than
 * `gap` on the axis. Those farthest out come first, so that the ends have names.
 */
export function symlogTicks(low: number, high: number, at: number, gap: number): number[] {
  const kept: number[] = low <= 0 && high >= 0 ? [0] : [];
  const free = (tick: number): boolean => kept.every((k) => Math.abs(symlog(k, at) - symlog(tick, at)) >= gap);
  for (const [limit, sign] of [
    [high, 1],
    [-low, -1],
  ] as const) {
    if (!(limit > 0)) continue;
    for (let k = Math.floor(Math.log10(limit) + 1e-9); k >= Math.ceil(Math.log10(at)); k--) {
      const tick = sign * Number(`1e${k}`);
      if (tick >= low && tick <= high && free(tick)) kept.push(tick);
    }
  }
  return kept.sort((a, b) => a - b);
}

/** The greatest finite size in a map; 0 where there is none. */
export function greatest(values: ArrayLike<number>): number {
  let size = 0;
  for (let i = 0; i < values.length; i++) {
    const v = Math.abs(values[i]!);
    if (v > size && v < Infinity) size = v;
  }
  return size;
}

/** A histogram in words. */
export function described(tensor: Captured): string {
  const share = tensor.numel > 0 ? Math.round((1000 * tensor.zeros) / tensor.numel) / 10 : 0;
  const bad = [tensor.nan > 0 ? `${tensor.nan} NaN` : "", tensor.inf > 0 ? `${tensor.inf} Inf` : ""]
    .filter(Boolean)
    .join(" and ");
  return `${share}% zeros${bad ? `, ${bad}` : ""}`;
}
