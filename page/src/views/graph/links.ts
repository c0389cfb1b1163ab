import type { Nodes } from "../../data/model";

/** The edges of a graph, to be walked both ways. Edge `e` takes the gradient from node `from[e]` to node `to[e]`. */
export class Links {
  readonly size: number;
  readonly edges: Int32Array;
  readonly to: Int32Array;
  readonly from: Int32Array;
  /** Edges into node i: `into[i]` to `into[i + 1]` in `back`, which holds numbers of edges. */
  readonly into: Int32Array;
  readonly back: Int32Array;

  constructor(nodes: Pick<Nodes, "edges" | "to">) {
    const { edges, to } = nodes;
    const size = Math.max(0, edges.length - 1);
    this.size = size;
    this.edges = edges;
    this.to = to;
    this.from = new Int32Array(to.length);
    this.into = new Int32Array(size + 1);
    for (let i = 0; i < size; i++) this.from.fill(i, edges[i]!, edges[i + 1]!);
    let inside = 0;
    for (const target of to) {
      if (target >= 0) {
        this.into[target + 1]!++;
        inside++;
      }
    }
    for (let i = 0; i < size; i++) this.into[i + 1]! += this.into[i]!;
    this.back = new Int32Array(inside);
    const next = this.into.slice(0, size);
    for (let e = 0; e < to.length; e++) if (to[e]! >= 0) this.back[next[to[e]!]!++] = e;
  }
}
