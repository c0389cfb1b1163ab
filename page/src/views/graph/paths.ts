import type { Links } from "./links";

/** All nodes between two, and one shortest path. */
export interface Way {
  /** 1 for nodes on any path. */
  on: Uint8Array;
  count: number;
  /** Nodes of a shortest path, in the direction of the gradient. */
  shortest: number[];
}

/** Distance from the nearest of `starts`, along the gradient or against it; -1 where there is no way. */
export function distances(links: Links, starts: readonly number[], against = false): Int32Array {
  const distance = new Int32Array(links.size).fill(-1);
  const queue = new Int32Array(links.size);
  let head = 0;
  let tail = 0;
  for (const start of starts) {
    if (distance[start] !== -1) continue;
    distance[start] = 0;
    queue[tail++] = start;
  }
  while (head < tail) {
    const node = queue[head++]!;
    const first = against ? links.into[node]! : links.edges[node]!;
    const last = against ? links.into[node + 1]! : links.edges[node + 1]!;
    for (let k = first; k < last; k++) {
      const next = against ? links.from[links.back[k]!]! : links.to[k]!;
      if (next < 0 || distance[next] !== -1) continue;
      distance[next] = distance[node]! + 1;
      queue[tail++] = next;
    }
  }
  return distance;
}

/** Ways that the gradient takes from one of `from` to one of `to`; null where there is none. */
export function between(links: Links, from: readonly number[], to: readonly number[]): Way | null {
  const down = distances(links, from);
  const up = distances(links, to, true);
  const on = new Uint8Array(links.size);
  let count = 0;
  for (let i = 0; i < links.size; i++) {
    if (down[i]! < 0 || up[i]! < 0) continue;
    on[i] = 1;
    count++;
  }
  if (count === 0) return null;
  return { on, count, shortest: shortest(links, from, up) };
}

function shortest(links: Links, from: readonly number[], up: Int32Array): number[] {
  let at = -1;
  for (const start of from) if (up[start]! >= 0 && (at < 0 || up[start]! < up[at]!)) at = start;
  const path = [at];
  while (up[at]! > 0) {
    let next = -1;
    for (let e = links.edges[at]!; e < links.edges[at + 1]! && next < 0; e++) {
      const target = links.to[e]!;
      if (target >= 0 && up[target] === up[at]! - 1) next = target;
    }
    path.push(next);
    at = next;
  }
  return path;
}
