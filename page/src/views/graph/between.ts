import type { Floats } from "../../data/document";
import type { Hierarchy } from "./hierarchy";
import type { Links } from "./links";

/** Where gradients of a group come from and go to outside it, in `Flow.from` and `Flow.to`. */
export const OUTSIDE = -1;

/** All edges from one entry of a group to another, or over its border, as one. The gradient flows along it. */
export interface Flow {
  /** Places in `Group.items`, or `OUTSIDE`. */
  from: number;
  to: number;
  count: number;
  /** Of all gradients along them together; -1: none was measured. */
  norm: number;
  /** One of its edges is on the path that is shown. */
  marked: boolean;
  /** Not in the graph: where it would go on if it were not cut. */
  cut: boolean;
}

/** Square root of a sum of squares of norms; below 0 are those that were not measured, and the sum of nothing is -1. */
export class Together {
  private sum = 0;
  private known = false;

  add(norm: number): void {
    if (norm < 0) return;
    this.sum += norm * norm;
    this.known = true;
  }

  get norm(): number {
    return this.known ? Math.sqrt(this.sum) : -1;
  }
}

/** The edges between the entries of a group. `on` has a 1 for each node of a path that is to be marked. */
export function flows(h: Hierarchy, links: Links, out: Floats, id: number, on: Uint8Array | null): Flow[] {
  const group = h.groups[id]!;
  const slot = new Int32Array(group.end - group.start);
  group.items.forEach((item, k) => {
    if (item < 0) slot[h.position[~item]! - group.start] = k;
    else slot.fill(k, h.groups[item]!.start - group.start, h.groups[item]!.end - group.start);
  });
  const width = group.items.length + 1;
  const found = new Map<number, { flow: Flow; sum: Together }>();
  const add = (from: number, to: number, edge: number): void => {
    const key = (from + 1) * width + to + 1;
    let one = found.get(key);
    if (!one) {
      one = { flow: { from, to, count: 0, norm: -1, marked: false, cut: false }, sum: new Together() };
      found.set(key, one);
    }
    one.flow.count++;
    one.sum.add(out[edge] ?? -1);
    if (on !== null && on[links.from[edge]!] === 1 && on[links.to[edge]!] === 1) one.flow.marked = true;
  };
  const inside = (node: number): number => {
    const place = h.position[node]! - group.start;
    return place >= 0 && place < slot.length ? slot[place]! : OUTSIDE;
  };
  for (let place = group.start; place < group.end; place++) {
    const node = h.sequence[place]!;
    const here = slot[place - group.start]!;
    for (let e = links.edges[node]!; e < links.edges[node + 1]!; e++) {
      if (links.to[e]! < 0) continue;
      const there = inside(links.to[e]!);
      // Parameters that several calls share stand outside them: boxes name them, and a line to each would hide the rest.
      if (there === here || (there === OUTSIDE && h.nodes.seq[links.to[e]!]! < 0)) continue;
      add(here, there, e);
    }
    for (let k = links.into[node]!; k < links.into[node + 1]!; k++) {
      const edge = links.back[k]!;
      if (inside(links.from[edge]!) === OUTSIDE) add(OUTSIDE, here, edge);
    }
  }
  return Array.from(found.values(), ({ flow, sum }) => ({ ...flow, norm: sum.norm }));
}
