/** Where the time of a backward goes, by module and by what the nodes do. */
import type { Calls, Model } from "../../data/model";
import { moduleOf, secondsOf } from "./timeline";

export interface ModuleTime {
  module: number;
  name: string;
  class: string;
  /** Seconds of its own nodes, and with those of the modules inside it. */
  own: number;
  all: number;
  nodes: number;
}

export function byModule(model: Model, call: Calls): ModuleTime[] {
  const nodes = model.nodes(call);
  const modules = model.doc.modules;
  const own = new Float64Array(modules.length);
  const counts = new Int32Array(modules.length);
  for (let i = 0; i < nodes.module.length; i++) {
    const m = moduleOf(model, nodes, i);
    if (m < 0 || call.order[i]! < 0) continue;
    own[m] = own[m]! + secondsOf(call.time[i]);
    counts[m] = counts[m]! + 1;
  }
  const all = own.slice();
  // Modules are in preorder: from the last to the first, each gives to its parent what it has.
  for (let m = modules.length - 1; m > 0; m--) {
    const parent = modules[m]!.parent;
    if (parent < 0) continue;
    all[parent] = all[parent]! + all[m]!;
    counts[parent] = counts[parent]! + counts[m]!;
  }
  return modules.flatMap((m, i) =>
    counts[i] === 0
      ? []
      : [{ module: i, name: model.name(i), class: m.class, own: own[i]!, all: all[i]!, nodes: counts[i]! }],
  );
}

export interface OpTime {
  name: string;
  op: string;
  seconds: number;
  nodes: number;
  measured: number;
}

/** By type of node and forward op, the slowest first. */
export function byOp(model: Model, call: Calls): OpTime[] {
  const nodes = model.nodes(call);
  const found = new Map<number, OpTime>();
  for (let i = 0; i < nodes.name.length; i++) {
    if (call.order[i]! < 0) continue;
    const key = nodes.name[i]! * nodes.strings.length + nodes.op[i]!;
    const row = found.get(key) ?? {
      name: nodes.strings[nodes.name[i]!]!,
      op: nodes.strings[nodes.op[i]!] ?? "",
      seconds: 0,
      nodes: 0,
      measured: 0,
    };
    found.set(key, row);
    row.seconds += secondsOf(call.time[i]);
    row.nodes++;
    if (call.time[i]! >= 0) row.measured++;
  }
  return [...found.values()].sort((a, b) => b.seconds - a.seconds);
}

/** What the nodes' times cover of the call's, in words. */
export function coverage(
  total: number,
  wall: number,
  ran: number,
  measured: number,
  words: (seconds: number) => string,
): string {
  const counts =
    measured === ran
      ? `All ${ran.toLocaleString("en-US")} nodes that ran were timed.`
      : `${measured.toLocaleString("en-US")} of the ${ran.toLocaleString("en-US")} nodes that ran were timed; the others count as 0.`;
  if (!(wall > 0) || !(total > 0)) return counts;
  const share = Math.round((100 * total) / wall);
  const sum = `Together they took ${words(total)}; the call took ${words(wall)}`;
  if (share > 101) return `${counts} ${sum}: ${share}%, as times of nodes may overlap and include the measuring.`;
  return `${counts} ${sum}: ${share}% of it.`;
}
