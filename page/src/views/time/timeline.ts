/** A backward call laid along the time: which nodes and modules run from when to when. */
import type { Calls, Model, Nodes } from "../../data/model";

/** One row: modules of one depth, or the nodes. Stretches in order; they do not overlap. */
export interface Row {
  /** Places in the order of the engine: stretch k covers `first[k]` to `last[k]`, both in. */
  first: Int32Array;
  last: Int32Array;
  /** Index into `doc.modules`, or the node itself in the row of nodes. */
  of: Int32Array;
}

export interface Timeline {
  /** Nodes that ran, in the order in which they ran. */
  sequence: Int32Array;
  /** When each begins, and at the end when all are done: one more than nodes. In seconds, or in nodes. */
  begin: Float64Array;
  /** Seconds before each node and after the last, in time and in order alike: what a stretch took is one difference. */
  elapsed: Float64Array;
  /** By depth from 0; the last row is the nodes. */
  rows: Row[];
  /** Nodes whose time was measured. */
  measured: number;
}

/** Nodes of a call in the order in which they ran. */
export function ranInOrder(order: Int32Array): Int32Array {
  const ran: number[] = [];
  for (let i = 0; i < order.length; i++) if (order[i]! >= 0) ran.push(i);
  return Int32Array.from(ran.sort((a, b) => order[a]! - order[b]!));
}

/** Module of a node; of one that accumulates into a parameter, the parameter's. */
export function moduleOf({ doc }: Model, nodes: Nodes, node: number): number {
  const module = nodes.module[node]!;
  const parameter = doc.parameters[nodes.parameter[node]!];
  return module >= 0 || !parameter || parameter.free ? module : parameter.module;
}

/** Seconds of a node: 0 where they were not measured. */
export function secondsOf(time: number | undefined): number {
  return time !== undefined && time > 0 && Number.isFinite(time) ? time : 0;
}

/** @param even every node is as wide as every other: in order, not in time. */
export function timeline(model: Model, call: Calls, even: boolean): Timeline {
  const nodes = model.nodes(call);
  const sequence = ranInOrder(call.order);
  const n = sequence.length;
  const elapsed = new Float64Array(n + 1);
  let measured = 0;
  for (let k = 0; k < n; k++) {
    const time = call.time[sequence[k]!]!;
    if (time >= 0) measured++;
    elapsed[k + 1] = elapsed[k]! + secondsOf(time);
  }
  const rows: Row[] = [];
  // Row by row: the ancestor at that depth of each node's module. Neighbours with the same one are a stretch.
  const modules = model.doc.modules;
  const ancestors = Int32Array.from(sequence, (i) => moduleOf(model, nodes, i));
  let deepest = 0;
  for (const m of ancestors) if (m >= 0) deepest = Math.max(deepest, model.depth[m]!);
  const up = new Int32Array(n);
  for (let depth = deepest; depth >= 0; depth--) {
    for (let k = 0; k < n; k++) {
      let m = ancestors[k]!;
      // One step up a row at most: what is deeper than this row is exactly one deeper.
      if (m >= 0 && model.depth[m]! > depth) m = ancestors[k] = modules[m]!.parent;
      up[k] = m >= 0 && model.depth[m] === depth ? m : -1;
    }
    rows.unshift(stretches(up));
  }
  rows.push({
    first: Int32Array.from(sequence, (_, k) => k),
    last: Int32Array.from(sequence, (_, k) => k),
    of: sequence,
  });
  const begin = even ? Float64Array.from({ length: n + 1 }, (_, k) => k) : elapsed;
  return { sequence, begin, elapsed, rows, measured };
}

function stretches(of: Int32Array): Row {
  const [first, last, kept]: [number[], number[], number[]] = [[], [], []];
  for (let k = 0; k < of.length; k++) {
    if (of[k]! < 0) continue;
    const end = last.length - 1;
    if (end >= 0 && kept[end] === of[k] && last[end] === k - 1) last[end] = k;
    else {
      first.push(k);
      last.push(k);
      kept.push(of[k]!);
    }
  }
  return { first: Int32Array.from(first), last: Int32Array.from(last), of: Int32Array.from(kept) };
}

/** A box to draw: stretches `from` to `to` (both in) of a row, in pixels. More than one where each is narrower than a pixel. */
export interface Box {
  from: number;
  to: number;
  x: number;
  width: number;
}

/**
 * The boxes of a row that are seen between the times `low` and `high` on `width` pixels. Neighbours that end within the
 * same pixel become one box, so that there are at most two boxes a pixel, and a look-up by halves finds each.
 */
export function boxes({ begin }: Timeline, row: Row, low: number, high: number, width: number): Box[] {
  const scale = width / Math.max(1e-300, high - low);
  const end = (k: number): number => begin[row.last[k]! + 1]!;
  const count = row.first.length;
  const found: Box[] = [];
  let k = firstAfter(count, (i) => end(i) > low);
  while (k < count && begin[row.first[k]!]! < high) {
    const x = (begin[row.first[k]!]! - low) * scale;
    let to = k;
    if ((end(k) - low) * scale - x < 1) {
      const limit = low + (x + 1) / scale;
      to = Math.max(k, firstAfter(count, (i) => end(i) > limit, k) - 1);
    }
    const [left, right] = [Math.max(0, x), Math.min(width, (end(to) - low) * scale)];
    if (end(to) > begin[row.first[k]!]!) found.push({ from: k, to, x: left, width: Math.max(right - left, 0.5) });
    k = to + 1;
  }
  return found;
}

/** The stretch at a time, or -1. */
export function stretchAt({ begin }: Timeline, row: Row, time: number): number {
  const k = firstAfter(row.first.length, (i) => begin[row.last[i]! + 1]! > time);
  return k < row.first.length && begin[row.first[k]!]! <= time ? k : -1;
}

/** The first index from `from` on for which `holds`, which holds for all after it too; `count` where none. */
function firstAfter(count: number, holds: (i: number) => boolean, from = 0): number {
  let [low, high] = [from, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
