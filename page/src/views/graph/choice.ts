import { whole } from "../../route";
import type { Hierarchy } from "./hierarchy";

type At = Readonly<Record<string, string>>;

/** What can be chosen in the address; all of it is emptied when another box is. */
const NONE = { node: "", module: "", nth: "", group: "", parameter: "" };

/** The box that the address names, or null. */
export function chosen(h: Hierarchy, at: At): number | null {
  const { modules, parameters } = h.model.doc;
  const node = whole(at.node, h.sequence.length, -1);
  if (node >= 0) return ~node;
  const group = whole(at.group, h.groups.length, -1);
  if (group >= 0) return group;
  const named = at.parameter ?? "";
  const byName = named === "" ? -1 : parameters.findIndex((p) => p.name === named);
  const parameter = byName >= 0 ? byName : whole(at.parameter, parameters.length, -1);
  if (parameter >= 0) return ofParameter(h, parameter);
  const module = whole(
    at.module,
    modules.length,
    modules.findIndex((m) => m.path !== "" && m.path === at.module),
  ); // prettier-ignore
  return module > 0 ? ofModule(h, module, whole(at.nth, 2 ** 20, 0)) : null;
}

/** The box of a parameter: its node, or the group that says that it got no gradient. */
export function ofParameter(h: Hierarchy, parameter: number): number | null {
  const node = h.leaves[parameter]!;
  return node >= 0 ? ~node : (h.cuts.get(parameter) ?? null);
}

function ofModule(h: Hierarchy, module: number, nth: number): number | null {
  const calls = h.modules.get(module);
  if (calls) return calls.find((id) => h.groups[id]!.nth === nth) ?? calls[0]!;
  const { modules } = h.model.doc;
  const cut = h.groups.findIndex((g) => g.kind === "cut" && h.model.within(module, g.module) && g.module > 0);
  if (cut >= 0) return cut;
  // One that nobody calls: what holds it.
  for (let m = modules[module]!.parent; m > 0; m = modules[m]!.parent)
    if (h.modules.has(m)) return h.modules.get(m)![0]!;
  return null;
}

/** The change of the address that chooses a box. */
export function choose(h: Hierarchy, box: number | null): Record<string, string> {
  if (box === null) return NONE;
  if (box < 0) return { ...NONE, node: String(~box) };
  const group = h.groups[box]!;
  if (group.kind !== "module") return { ...NONE, group: String(box) };
  return { ...NONE, module: String(group.module), nth: group.nth ? String(group.nth) : "" };
}
