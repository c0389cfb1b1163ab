/** Documents written by hand, for tests. */
import type { Decoded, Finding } from "../../data/document";
import { Model } from "../../data/model";
import { Hierarchy } from "./hierarchy";
import { type Scene, Scenes } from "./scene";

export interface NodeSpec {
  name?: string;
  op?: string;
  seq?: number;
  module?: string;
  nth?: number;
  site?: number;
  /** Name of the parameter that it accumulates into. */
  parameter?: string;
  to?: number[];
  out?: number[];
  came?: number;
  time?: number;
  order?: number;
  marks?: number;
}

export interface Spec {
  /** Path, class and calls, a parent before its children; the outermost one is added. */
  modules?: [string, string, number?][];
  /** Name, and what differs from a plain one. */
  parameters?: [string, { requires_grad?: boolean; reached?: number }?][];
  nodes: NodeSpec[];
  roots?: number[];
  sites?: [string, number][];
  findings?: Partial<Finding>[];
  memory?: { module: string; site: number; op: string; bytes: number }[];
  forward?: { step: number; module: string; nth: number; norm: number }[];
}

/** A node that accumulates into a parameter. */
export function leaf(parameter: string, more: NodeSpec = {}): NodeSpec {
  return { name: "torch::autograd::AccumulateGrad", seq: -1, parameter, ...more };
}

export function modelOf(spec: Spec): Model {
  const modules = [["", "Net", 1] as [string, string, number?], ...(spec.modules ?? [])];
  const paths = modules.map(([path]) => path);
  const number = (path: string | undefined): number => paths.indexOf(path ?? "");
  const parameters = spec.parameters ?? [];
  const strings = [...new Set(spec.nodes.flatMap((n) => [n.name ?? "AddBackward0", n.op ?? ""]))];
  const places = new Map(strings.map((text, k) => [text, k]));
  const ints = (of: (n: NodeSpec, i: number) => number): Int32Array => Int32Array.from(spec.nodes, of);
  const floats = (of: (n: NodeSpec) => number): Float32Array => Float32Array.from(spec.nodes, of);
  const edges = [0];
  for (const node of spec.nodes) edges.push(edges.at(-1)! + (node.to?.length ?? 0));
  const doc = {
    findings: (spec.findings ?? []).map((f) => ({
      kind: "",
      severity: "info",
      title: "",
      confidence: "certain",
      module: null,
      node: null,
      tensor: null,
      parameters: [],
      step: null,
      rank: null,
      sites: [],
      evidence: {},
      advice: "",
      at: null,
      ...f,
    })),
    sites: (spec.sites ?? []).map(([file, line]) => ({ file, line, function: "", text: "" })),
    modules: modules.map(([path, name, calls], i) => ({
      path,
      class: name,
      calls: calls ?? 1,
      site: -1,
      parent: i === 0 ? -1 : paths.indexOf(path.split(".").slice(0, -1).join(".")),
    })),
    parameters: parameters.map(([name, more]) => ({
      name,
      module: paths.indexOf(name.split(".").slice(0, -1).join(".")),
      free: false,
      shape: [2],
      requires_grad: true,
      reached: 1,
      alive: true,
      trained: true,
      defined: -1,
      ...more,
    })),
    layouts: [
      {
        strings,
        name: ints((n) => places.get(n.name ?? "AddBackward0")!),
        op: ints((n) => places.get(n.op ?? "")!),
        seq: ints((n, i) => n.seq ?? spec.nodes.length - 1 - i),
        module: ints((n) => number(n.module)),
        nth: ints((n) => n.nth ?? 1),
        site: ints((n) => n.site ?? -1),
        library: ints(() => 0),
        stacks: [[]],
        parameter: ints((n) => parameters.findIndex(([name]) => name === n.parameter)),
        edges: Int32Array.from(edges),
        to: Int32Array.from(spec.nodes.flatMap((n) => n.to ?? [])),
        time: floats((n) => n.time ?? -1),
        timed: 1,
      },
    ],
    calls: [
      {
        step: 0,
        index: 0,
        kind: "Tensor.backward",
        arguments: {},
        site: -1,
        seconds: 0.1,
        raised: null,
        layout: 0,
        roots: (spec.roots ?? [0]).map((node) => ({ node, shape: [], dtype: "float32", value: 1 })),
        order: ints((n, i) => n.order ?? i),
        time: floats((n) => n.time ?? -1),
        came: floats((n) => n.came ?? 1),
        out: Float32Array.from(spec.nodes.flatMap((n) => n.out ?? (n.to ?? []).map(() => 1))),
        marks: ints((n) => n.marks ?? 0),
        shape: ints(() => -1),
        words: [],
        notes: {},
      },
    ],
    forward: (spec.forward ?? []).map((f) => ({
      step: f.step,
      module: Int32Array.of(number(f.module)),
      nth: Int32Array.of(f.nth),
      norm: Float32Array.of(f.norm),
    })),
    memory: spec.memory
      ? {
          step: 0,
          total: 0,
          notes: [],
          curve: null,
          rows: spec.memory.map((m) => ({ ...m, module: number(m.module), dtype: "", tensors: 1, names: [] })),
        }
      : null,
  }; // prettier-ignore
  return new Model(doc as unknown as Decoded);
}

export function hierarchyOf(spec: Spec): Hierarchy {
  const model = modelOf(spec);
  return new Hierarchy(model, model.doc.layouts[0]!);
}

export function sceneOf(spec: Spec): Scene {
  return new Scenes(modelOf(spec)).at(0);
}

/** Group `id` as nested text: "blocks[ln[3 2] 1]", nodes by number. */
export function shape(h: Hierarchy, id = 0): string {
  const inside = Array.from(h.groups[id]!.items, (item) => (item < 0 ? String(~item) : shape(h, item))).join(" ");
  const { kind, module, nth, times } = h.groups[id]!;
  if (id === 0) return inside;
  const path = h.model.doc.modules[module]!.path;
  const name =
    kind === "module" || kind === "cut" ? `${kind === "cut" ? "cut " : ""}${path}${nth ? `:${nth}` : ""}` : kind;
  return `${name}${kind === "run" ? `×${times}` : ""}[${inside}]`;
}

/** Numbers from 0 to 1 that are the same every time. */
export function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** A graph of `size` nodes in modules a, a.x, a.y, b, where each node gives to some of those after it. */
export function randomSpec(seed: number, size: number): Spec {
  const draw = random(seed);
  const places = ["", "a", "a.x", "a.y", "b"];
  const nodes = Array.from({ length: size }, (_, i): NodeSpec => {
    const to = Array.from(
      { length: i + 1 < size ? Math.floor(draw() * 3) : 0 },
      () => i + 1 + Math.floor(draw() * Math.min(6, size - 1 - i)),
    );
    const out = to.map(() => (draw() < 0.2 ? -1 : draw() * 4));
    return { module: places[Math.floor(draw() * places.length)]!, to, out, time: draw() < 0.3 ? -1 : draw() };
  });
  return {
    modules: [
      ["a", "A"],
      ["a.x", "L"],
      ["a.y", "L"],
      ["b", "B"],
    ],
    nodes,
  }; // prettier-ignore
}
