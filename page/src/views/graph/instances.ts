import type { Model, Nodes } from "../../data/model";

export type Kind = "module" | "run" | "turn" | "line" | "part" | "leaves" | "cut";

/** A group while it is being made. Entries are nodes (numbers) or other drafts, in the order of the forward. */
export interface Draft {
  kind: Kind;
  module: number;
  /** Which call of the module, from 1; 0 where the graph has one only. */
  nth: number;
  items: (Draft | number)[];
  /** Nodes that accumulate into parameters, or into other leaves. */
  leaves: number[];
  cuts: Draft[];
  /** Of `cut`: the parameters that got no gradient. */
  parameters: number[];
  /** Equal for groups that look the same inside. */
  sign: number;
  /** Of `part`: the first of its entries, from 0, and how many there are with those of its neighbours. */
  first: number;
  of: number;
  /** Of `run`: how many times, and entries each. */
  times: number;
  period: number;
}

export function draft(kind: Kind, module: number, items: (Draft | number)[] = [], nth = 0): Draft {
  return {
    kind,
    module,
    nth,
    items,
    leaves: [],
    cuts: [],
    parameters: [],
    sign: -1,
    first: 0,
    of: 0,
    times: 1,
    period: 0,
  };
}

const CALLS = 2 ** 20;

/**
 * The calls of modules that made the nodes of a graph, one in the other. Containers that nobody calls (a ModuleList) are
 * left out: what is in them belongs to the module that holds them.
 */
export class Instances {
  readonly root = draft("module", 0);
  /** By module: its instances in the order of the forward. */
  readonly of: Draft[][];
  private readonly made = new Map<number, Draft>();
  private readonly calls: Int32Array;

  constructor(
    private readonly model: Model,
    nodes: Nodes,
  ) {
    const modules = model.doc.modules;
    this.calls = Int32Array.from(modules, (m) => m.calls);
    this.of = modules.map(() => []);
    if (modules.length) this.of[0]!.push(this.root);
    for (let i = 0; i < nodes.name.length; i++) {
      const module = nodes.module[i]!;
      if (module > 0 && nodes.seq[i]! >= 0) this.calls[module] = Math.max(this.calls[module]!, nodes.nth[i]!, 1);
    }
    let [module, nth, here] = [0, 0, this.root];
    for (const node of inForwardOrder(nodes)) {
      if (nodes.module[node]! !== module || nodes.nth[node]! !== nth) {
        [module, nth] = [nodes.module[node]!, nodes.nth[node]!];
        here = this.get(module, nth);
      }
      here.items.push(node);
    }
    for (const all of this.of) if (all.length === 1 && all[0]!.nth === 1) all[0]!.nth = 0;
  }

  /** Where something that belongs to a module and to none of its calls goes: the nearest that was called just once. */
  home(module: number): Draft {
    for (let m = module; m > 0; m = this.model.doc.modules[m]!.parent) {
      if (this.of[m]!.length === 1) return this.of[m]![0]!;
    }
    return this.root;
  }

  /** The instance, made if it is new; then those around it are too. */
  private get(module: number, nth: number): Draft {
    let inner: Draft | null = null;
    let first: Draft | null = null;
    for (;;) {
      const key = module <= 0 ? 0 : module * CALLS + nth;
      const known = module <= 0 ? this.root : this.made.get(key);
      const here = known ?? draft("module", module, [], nth);
      first ??= here;
      if (inner) here.items.push(inner);
      if (known) return first;
      this.made.set(key, here);
      this.of[module]!.push(here);
      inner = here;
      [module, nth] = this.around(module, nth);
    }
  }

  /** The call that a call was made in. It is not recorded: calls of the outer one share out those of the inner one. */
  private around(module: number, nth: number): [number, number] {
    let outer = this.model.doc.modules[module]!.parent;
    while (outer > 0 && this.calls[outer] === 0) outer = this.model.doc.modules[outer]!.parent;
    if (outer <= 0) return [0, 1];
    const outside = this.calls[outer]!;
    const inside = Math.max(1, this.calls[module]!);
    return [outer, Math.min(outside, Math.max(1, Math.ceil((nth * outside) / inside)))];
  }
}

/** Nodes that compute, by their sequence number; the later of two with the same comes first, as it is nearer to the inputs. */
function inForwardOrder({ seq }: Nodes): Int32Array {
  let greatest = -1;
  let count = 0;
  for (const number of seq) {
    if (number < 0) continue;
    greatest = Math.max(greatest, number);
    count++;
  }
  const sorted = new Int32Array(count);
  if (greatest > 8 * count + 1024) {
    let k = 0;
    for (let i = seq.length - 1; i >= 0; i--) if (seq[i]! >= 0) sorted[k++] = i;
    return sorted.sort((a, b) => seq[a]! - seq[b]! || b - a);
  }
  // Numbers are dense: counting is faster than comparing.
  const place = new Int32Array(greatest + 2);
  for (const number of seq) if (number >= 0) place[number + 1]!++;
  for (let k = 0; k <= greatest; k++) place[k + 1]! += place[k]!;
  for (let i = seq.length - 1; i >= 0; i--) if (seq[i]! >= 0) sorted[place[seq[i]!]!++] = i;
  return sorted;
}
