import { shapeSaid } from "../../data/said";
import { count } from "../../parts/words";
import type { Hierarchy } from "./hierarchy";

export interface Name {
  title: string;
  /** What it is: a class, an op, what repeats. */
  kind: string;
}

/** What a box is called. Modules are named from the module around them on. */
export function nameOf(h: Hierarchy, box: number): Name {
  if (box < 0) return nodeName(h, ~box);
  const group = h.groups[box]!;
  const { doc } = h.model;
  switch (group.kind) {
    case "module":
      if (box === 0) return { title: "whole graph", kind: doc.modules[0]?.class ?? "" };
      return { title: moduleName(h, box), kind: doc.modules[group.module]?.class ?? "" };
    case "run": {
      const turns = group.period > 1;
      if (turns) {
        const [first, last] = [turnModule(h, deep(h, box, false)), turnModule(h, deep(h, box, true))];
        const title = first === last ? "repeats" : `${first} … ${last}`;
        return { title: `${title} ×${group.times}`, kind: sequenceOf(h, deep(h, box, false)) };
      }
      const [first, last] = [nameOf(h, deep(h, box, false)), nameOf(h, deep(h, box, true))];
      const title = first.title === last.title ? first.title : `${first.title} … ${last.title}`;
      return { title: `${title} ×${group.times}`, kind: first.kind };
    }
    case "turn": {
      const other = h.groups[group.parent]!.items.find((sibling) => sibling !== box)!;
      const [mine, theirs] = [turnModule(h, box), turnModule(h, other)];
      const title = mine === theirs ? `turn ${group.first + 1} of ${group.of}` : `${mine} …`;
      return { title, kind: sequenceOf(h, box) };
    }
    case "line": {
      const { op, place } = nodeFacts(h, h.sequence[group.start]!);
      return { title: op || "several nodes", kind: place };
    }
    case "part": {
      const size = partSize(h, box);
      const title = `${group.first + 1}–${group.first + size} of ${group.of.toLocaleString("en-US")}`;
      const ends = [nameOf(h, deep(h, box, false)).title, nameOf(h, deep(h, box, true)).title];
      return { title, kind: ends[0] === ends[1] ? ends[0]! : `${ends[0]} … ${ends[1]}` };
    }
    case "leaves":
      return { title: count(group.of, "parameter"), kind: "" };
    case "cut":
      return { title: cutName(h, box), kind: doc.modules[group.module]?.class ?? "" };
  }
}

/** The whole name, for titles and for those who listen. */
export function fullName(h: Hierarchy, box: number): string {
  const { doc } = h.model;
  if (box < 0) {
    const { type, op, place } = nodeFacts(h, ~box);
    const parameter = doc.parameters[h.nodes.parameter[~box]!]?.name;
    return [parameter ?? type, parameter ? "" : op, place].filter(Boolean).join(", ");
  }
  const group = h.groups[box]!;
  const path = h.model.name(group.module) + (group.nth ? `:${group.nth}` : "");
  const { title, kind } = nameOf(h, box);
  if (group.kind === "module") return [path, kind].filter(Boolean).join(", ");
  if (group.kind === "cut") return `${title}: no gradient`;
  return [title, kind, group.module > 0 ? `in ${path}` : ""].filter(Boolean).join(", ");
}

/** A node by its type and its module, or a parameter by its name. */
export function briefName(h: Hierarchy, node: number): string {
  const parameter = h.model.doc.parameters[h.nodes.parameter[node]!];
  if (parameter) return parameter.name;
  const module = h.nodes.module[node]!;
  return nodeFacts(h, node).type + (module > 0 ? ` · ${h.model.name(module)}` : "");
}

/** Type, op and line of a node. */
export function nodeFacts(h: Hierarchy, node: number): { type: string; op: string; place: string } {
  const { strings, name, op, site } = h.nodes;
  const type = (strings[name[node]!] ?? "").replace(/^torch::autograd::/, "");
  return { type, op: strings[op[node]!] ?? "", place: h.model.place(site[node]!) };
}

function nodeName(h: Hierarchy, node: number): Name {
  const { type, op, place } = nodeFacts(h, node);
  const parameter = h.model.doc.parameters[h.nodes.parameter[node]!];
  if (parameter) return { title: within(h, h.owner[node]!, parameter.name), kind: shapeSaid(parameter.shape) };
  if (h.nodes.seq[node]! < 0) return { title: "leaf tensor", kind: type };
  const file = place.slice(Math.max(place.lastIndexOf("/"), place.lastIndexOf("\\")) + 1);
  return { title: type, kind: [op, file].filter(Boolean).join(" ") };
}

function moduleName(h: Hierarchy, id: number): string {
  const { module, nth, parent } = h.groups[id]!;
  return within(h, parent, h.model.name(module)) + (nth ? `:${nth}` : "");
}

/** A path without that of the module around. */
function within(h: Hierarchy, id: number, path: string): string {
  const outer = h.model.doc.modules[h.groups[id]!.module]?.path ?? "";
  return outer && path.startsWith(`${outer}.`) ? path.slice(outer.length + 1) : path;
}

function cutName(h: Hierarchy, id: number): string {
  const { parameters, parent, module } = h.groups[id]!;
  const { doc } = h.model;
  if (parameters.length === 1) return within(h, parent, doc.parameters[parameters[0]!]!.name);
  const here = module === h.groups[parent]!.module;
  return here ? count(parameters.length, "parameter") : within(h, parent, h.model.name(module));
}

/** The first module that a turn of a loop calls, without the number of the call; "" for none, or another kind of group. */
function turnModule(h: Hierarchy, id: number): string {
  const called =
    h.groups[id]?.kind === "turn"
      ? h.groups[id].items.find((item) => item >= 0 && h.groups[item]!.kind === "module")
      : undefined; // prettier-ignore
  return called === undefined ? "" : moduleName(h, called).replace(/:\d+$/, "");
}

/** The first or last entry inside, through parts. */
function deep(h: Hierarchy, id: number, last: boolean): number {
  let at = h.groups[id]!.items.at(last ? -1 : 0)!;
  while (at >= 0 && h.groups[at]!.kind === "part") at = h.groups[at]!.items.at(last ? -1 : 0)!;
  return at;
}

function partSize(h: Hierarchy, id: number): number {
  const { parent, items, first, of } = h.groups[id]!;
  const siblings = h.groups[parent]!.items;
  const next = siblings[siblings.indexOf(id) + 1];
  if (next !== undefined && next >= 0 && h.groups[next]!.kind === "part" && h.groups[next]!.first > first) {
    return h.groups[next]!.first - first;
  }
  const outer = h.groups[parent]!;
  if (outer.kind === "part") return outer.first + partSize(h, parent) - first;
  return Math.max(items.length, of - first);
}

function sequenceOf(h: Hierarchy, id: number): string {
  const short = (box: number): string =>
    box < 0 ? nodeFacts(h, ~box).op || nodeName(h, ~box).title : nameOf(h, box).title;
  const names = h.groups[id]!.items.slice(0, 6)
    .map(short)
    .map((text) => text.replace(/:\d+$/, ""));
  return names.filter((text, k) => text !== names[k - 1]).join(", ") + (h.groups[id]!.items.length > 6 ? ", …" : "");
}
