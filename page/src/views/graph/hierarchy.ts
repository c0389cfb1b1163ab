import type { Model, Nodes } from "../../data/model";
import { Folder } from "./fold";
import { type Draft, Instances, type Kind } from "./instances";
import { addCuts } from "./missing";

/** Boxes that a picture may show. An entry of `items` is the number of a group, or `~node` for a node. */
export interface Group {
  kind: Kind;
  parent: number;
  depth: number;
  /** The module that it is, or is in. */
  module: number;
  nth: number;
  items: readonly number[];
  /** Its nodes: `start` to `end` in `Hierarchy.sequence`. */
  start: number;
  end: number;
  /** The last group inside it, plus one: groups are in preorder. */
  last: number;
  first: number;
  of: number;
  times: number;
  period: number;
  parameters: readonly number[];
}

/** The nodes of a graph by modules and their calls, repeated parts folded. Group 0 is the whole. */
export class Hierarchy {
  readonly groups: Group[] = [];
  /** Nodes in the order of the groups. */
  readonly sequence: Int32Array;
  /** By node: its place in `sequence`. */
  readonly position: Int32Array;
  /** By node: the innermost group that it is in. */
  readonly owner: Int32Array;
  /** By module: the groups that are its calls, in the order of the forward. */
  readonly modules = new Map<number, number[]>();
  /** By parameter: its node, or -1. */
  readonly leaves: Int32Array;
  /** By parameter without gradient: the group that says so. */
  readonly cuts = new Map<number, number>();

  constructor(
    readonly model: Model,
    readonly nodes: Nodes,
  ) {
    const size = nodes.name.length;
    this.sequence = new Int32Array(size);
    this.position = new Int32Array(size);
    this.owner = new Int32Array(size);
    this.leaves = new Int32Array(model.doc.parameters.length).fill(-1);
    nodes.parameter.forEach((parameter, node) => {
      if (parameter >= 0) this.leaves[parameter] = node;
    });
    this.flatten(built(model, nodes));
  }

  /** Whether group `outer` holds a box: a group or `~node`. */
  holds(outer: number, box: number): boolean {
    const group = this.groups[outer]!;
    if (box >= 0) return box >= outer && box < group.last;
    const at = this.position[~box]!;
    return at >= group.start && at < group.end;
  }

  /** The group right around a box. */
  around(box: number): number {
    return box >= 0 ? this.groups[box]!.parent : this.owner[~box]!;
  }

  private flatten(root: Draft): void {
    let place = 0;
    const stack: { items: Draft["items"]; into: number[]; id: number; at: number }[] = [];
    const enter = (made: Draft, parent: number): number => {
      const id = this.groups.length;
      const { kind, module, nth, first, of, times, period, parameters } = made;
      const depth = parent < 0 ? 0 : this.groups[parent]!.depth + 1;
      // Plain arrays: a small typed one costs some microseconds, and there are as many as groups.
      const items: number[] = [];
      const [start, end, last] = [place, place, id + 1];
      this.groups.push({
        kind,
        parent,
        depth,
        module,
        nth,
        items,
        start,
        end,
        last,
        first,
        of,
        times,
        period,
        parameters,
      }); // prettier-ignore
      if (kind === "module") {
        const calls = this.modules.get(module);
        if (calls) calls.push(id);
        else this.modules.set(module, [id]);
      }
      for (const parameter of parameters) this.cuts.set(parameter, id);
      stack.push({ items: made.items, into: items, id, at: 0 });
      return id;
    };
    enter(root, -1);
    while (stack.length) {
      const top = stack[stack.length - 1]!;
      const item = top.items[top.at++];
      if (item === undefined) {
        const group = this.groups[top.id]!;
        group.end = place;
        group.last = this.groups.length;
        stack.pop();
      } else if (typeof item === "number") {
        top.into.push(~item);
        this.owner[item] = top.id;
        this.position[item] = place;
        this.sequence[place++] = item;
      } else top.into.push(enter(item, top.id));
    }
  }
}

function built(model: Model, nodes: Nodes): Draft {
  const instances = new Instances(model, nodes);
  const reached = new Uint8Array(model.doc.parameters.length);
  addLeaves(model, nodes, instances, reached);
  addCuts(model, instances, reached);
  const { modules, sites } = model.doc;
  const folder = new Folder({
    nodes,
    type: (module) => modules[module]?.class ?? "",
    line: (site) => sites[site]?.line ?? -1,
  });
  // A call is inside a call of a module above it: deeper modules first means inner groups first.
  const all = instances.of.flat().sort((a, b) => model.depth[b.module]! - model.depth[a.module]!);
  for (const one of all.length ? all : [instances.root]) folder.fold(one);
  return instances.root;
}

/** Nodes that accumulate: with their parameter's module, others with what uses them. */
function addLeaves(model: Model, nodes: Nodes, instances: Instances, reached: Uint8Array): void {
  for (let i = 0; i < nodes.name.length; i++) {
    if (nodes.seq[i]! >= 0) continue;
    const parameter = nodes.parameter[i]!;
    if (parameter >= 0) reached[parameter] = 1;
    const module = parameter >= 0 ? model.doc.parameters[parameter]!.module : nodes.module[i]!;
    instances.home(Math.max(0, module)).leaves.push(i);
  }
  for (const calls of instances.of) {
    for (const one of calls) one.leaves.sort((a, b) => nodes.parameter[a]! - nodes.parameter[b]! || a - b);
  }
}
