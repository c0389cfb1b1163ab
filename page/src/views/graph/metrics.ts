import type { Calls, Model } from "../../data/model";
import { meanSaid } from "../../data/said";
import { forwardAt } from "../../data/step";
import type { Hierarchy } from "./hierarchy";
import { shareBytes } from "./kept";
import type { Links } from "./links";

/** What boxes can be coloured by. */
export const METRICS = ["gradient", "time", "bytes", "order", "bad"] as const;
export type Metric = (typeof METRICS)[number];

/** Bits of `Call.marks`. */
export const BAD = 1;
export const MADE = 2;
export const FORWARD = 4;
export const ZERO = 8;
export const RAISED = 16;
const BITS = [BAD, MADE, FORWARD, ZERO, RAISED];

/** What is known of each box in one backward call: of groups by number, of nodes by `~node`. */
export class Metrics {
  /** By group: norm of the gradients that came in from outside it; -1: not measured. */
  private readonly came: Float64Array;
  /** Sums over places of the sequence: seconds, nodes with a time, nodes that ran, and nodes with each mark. */
  private readonly time: Float64Array;
  private readonly timed: Int32Array;
  private readonly ran: Int32Array;
  private readonly marked = new Map<number, Int32Array>();
  private readonly firstOrder: Float64Array;
  private readonly kept: Float64Array | null;
  private readonly keptByModule: Float64Array | null;
  /** The first node in the forward whose result was not finite; -1: none. */
  readonly firstForward: number;
  private readonly forward = new Map<number, number>();
  /** The step in which forward norms were measured; -1: in none. */
  readonly forwardStep: number;

  constructor(
    readonly model: Model,
    readonly call: Calls,
    readonly h: Hierarchy,
    links: Links,
  ) {
    const { order, marks } = call;
    const { time } = model.nodes(call);
    this.time = sums(h, (node) => Math.max(0, time[node]!), Float64Array);
    this.timed = sums(h, (node) => (time[node]! >= 0 ? 1 : 0), Int32Array);
    this.ran = sums(h, (node) => (order[node]! >= 0 ? 1 : 0), Int32Array);
    for (const bit of BITS)
      this.marked.set(
        bit,
        sums(h, (node) => (marks[node]! & bit ? 1 : 0), Int32Array),
      );
    this.came = cameIn(call, h, links);
    this.firstOrder = firstOrders(call, h);
    let first = -1;
    marks.forEach((bits, node) => {
      if (bits & FORWARD && (first < 0 || h.nodes.seq[node]! < h.nodes.seq[first]!)) first = node;
    });
    this.firstForward = first;
    const shares = shareBytes(model, model.nodes(call));
    this.kept = shares && sums(h, (node) => shares.ofNode[node]!, Float64Array);
    this.keptByModule = shares?.ofModule ?? null;
    const measured = forwardAt(model, call.step);
    this.forwardStep = measured?.step ?? -1;
    measured?.module.forEach((module, k) => this.forward.set(module * 2 ** 20 + measured.nth[k]!, measured.norm[k]!));
  }

  /** Norm of the gradients that came to a box; -1: not measured. */
  gradient(box: number): number {
    return box >= 0 ? this.came[box]! : this.call.came[~box]!;
  }

  /** Norm of what a module's call returned; -1: not measured, or no module. */
  output(box: number): number {
    const group = box >= 0 ? this.h.groups[box]! : null;
    if (group?.kind !== "module" || box === 0) return -1;
    return this.forward.get(group.module * 2 ** 20 + (group.nth || 1)) ?? -1;
  }

  /** Seconds of its nodes in the backward, the mean over the calls with this graph; -1: not measured. */
  seconds(box: number): number {
    return this.over(this.timed, box) ? this.over(this.time, box) : -1;
  }

  /** Bytes kept for backward, -1: not known; and whether they are a share of what several nodes or calls keep together. */
  bytes(box: number): { bytes: number; shared: boolean } {
    if (!this.kept || !this.keptByModule) return { bytes: -1, shared: false };
    const group = box >= 0 ? this.h.groups[box]! : null;
    if (group?.kind === "module" && this.h.modules.get(group.module)!.length === 1) {
      const end = this.model.end[group.module]!;
      return { bytes: this.keptByModule[end]! - this.keptByModule[group.module]!, shared: false };
    }
    return { bytes: this.over(this.kept, box), shared: true };
  }

  /** In which place its first node ran; -1: none ran. */
  order(box: number): number {
    const first = box >= 0 ? this.firstOrder[box]! : this.call.order[~box]!;
    return Number.isFinite(first) ? first : -1;
  }

  /** "mean of 5 calls", of `seconds`; "" where none was measured. */
  get mean(): string {
    return meanSaid(this.model.nodes(this.call).timed);
  }

  /** In which step the norms of outputs were measured, where it is not the call's. */
  get outputStep(): string {
    return this.forwardStep === this.call.step ? "" : ` (measured in step ${this.forwardStep})`;
  }

  /** How many of its nodes have a mark. */
  count(bit: number, box: number): number {
    return this.over(this.marked.get(bit)!, box);
  }

  /** Whether the first result that was not finite was made in it. */
  beganForward(box: number): boolean {
    const node = this.firstForward;
    return node >= 0 && (box >= 0 ? this.h.holds(box, ~node) : ~box === node);
  }

  /** How many of its nodes ran. */
  run(box: number): number {
    return this.over(this.ran, box);
  }

  /** A box by a metric, as a number for the scale; -1: not known. */
  value(metric: Metric, box: number): number {
    if (metric === "gradient") return this.gradient(box);
    if (metric === "time") return this.seconds(box);
    if (metric === "bytes") return this.bytes(box).bytes;
    if (metric === "order") return this.order(box);
    return this.count(BAD, box);
  }

  private over(sum: Float64Array | Int32Array, box: number): number {
    const start = box >= 0 ? this.h.groups[box]!.start : this.h.position[~box]!;
    const end = box >= 0 ? this.h.groups[box]!.end : start + 1;
    return sum[end]! - sum[start]!;
  }
}

/** Sums up to each place of the sequence, so that a group's is a difference. */
function sums<T extends Float64Array | Int32Array>(
  h: Hierarchy,
  of: (node: number) => number,
  kind: new (length: number) => T,
): T {
  const out = new kind(h.sequence.length + 1);
  for (let place = 0; place < h.sequence.length; place++) out[place + 1] = out[place]! + of(h.sequence[place]!);
  return out;
}

/** By group: the gradients over edges that start outside it and end inside, and those given to roots inside it. */
function cameIn(call: Calls, h: Hierarchy, links: Links): Float64Array {
  const sum = new Float64Array(h.groups.length);
  const known = new Uint8Array(h.groups.length);
  const add = (id: number, norm: number): void => {
    sum[id]! += norm * norm;
    known[id] = 1;
  };
  for (let e = 0; e < links.to.length; e++) {
    const norm = call.out[e] ?? -1;
    const target = links.to[e]!;
    if (target < 0 || norm < 0) continue;
    const source = h.position[links.from[e]!]!;
    for (let id = h.owner[target]!; id >= 0; id = h.groups[id]!.parent) {
      const group = h.groups[id]!;
      if (source >= group.start && source < group.end) break;
      add(id, norm);
    }
  }
  for (const { node } of call.roots) {
    if (node < 0 || node >= links.size) continue;
    // What was given to a root: all that came, without what came over edges.
    let given = call.came[node]! < 0 ? -1 : call.came[node]! ** 2;
    for (let k = links.into[node]!; k < links.into[node + 1]!; k++)
      given -= Math.max(0, call.out[links.back[k]!]!) ** 2;
    if (call.came[node]! < 0) continue;
    const norm = Number.isNaN(given) ? NaN : Math.sqrt(Math.max(0, given));
    for (let id = h.owner[node]!; id >= 0; id = h.groups[id]!.parent) add(id, norm);
  }
  return sum.map((value, id) => (known[id] ? Math.sqrt(value) : -1));
}

function firstOrders(call: Calls, h: Hierarchy): Float64Array {
  const first = new Float64Array(h.groups.length).fill(Infinity);
  h.owner.forEach((id, node) => {
    if (call.order[node]! >= 0) first[id] = Math.min(first[id]!, call.order[node]!);
  });
  for (let id = h.groups.length - 1; id > 0; id--) {
    const parent = h.groups[id]!.parent;
    first[parent] = Math.min(first[parent]!, first[id]!);
  }
  return first;
}
