import type { Hierarchy } from "./hierarchy";
import type { Size } from "./layout";

export const WIDTH = 244;
const NODE = 50;
const ROW = 20;
export const BARS = 18;

/** Parameters right in a module, shown as chips while it is closed, if they are few. */
export function chipsOf(h: Hierarchy, box: number): readonly number[] {
  const group = box > 0 ? h.groups[box]! : null;
  if (group?.kind !== "module") return [];
  const found: number[] = [];
  const { parameters, modules } = h.model.doc;
  const end = h.model.end[group.module]!;
  if (end > group.module + 1 && modules[group.module + 1]!.calls > 0) return [];
  // In forward order by module: a module's parameters come one after the other.
  for (let p = firstOf(h, group.module); p < parameters.length && parameters[p]!.module < end; p++) found.push(p);
  return found.length <= 3 ? found : [];
}

function firstOf(h: Hierarchy, module: number): number {
  const { parameters } = h.model.doc;
  let [low, high] = [0, parameters.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (parameters[middle]!.module < module) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** How large a closed box is; of group 0, the least that a picture is. */
export function sizeOf(h: Hierarchy, box: number): Size {
  if (box < 0) return h.nodes.seq[~box]! < 0 ? { width: 160, height: NODE } : { width: WIDTH, height: NODE };
  const { kind } = h.groups[box]!;
  if (kind === "run") return { width: WIDTH, height: NODE + BARS + 4 };
  if (kind === "cut") return { width: WIDTH, height: NODE };
  return { width: WIDTH, height: NODE + (chipsOf(h, box).length ? ROW + 2 : 0) };
}
