/** Hand-written documents for the tests of the charts. */
import type { Decoded, Floats, Memory, Parameter, Series } from "../data/document";
import type { Calls, Nodes } from "../data/model";

type DecodedSeries = Series<Floats, Int32Array>;

/** Modules of these paths, in this order; a parent must come before its children. */
export function modulesOf(paths: readonly string[]): Decoded["modules"] {
  return paths.map((path) => ({
    path,
    class: `Class${path.split(".").length}`,
    parent: path === "" ? -1 : paths.indexOf(path.slice(0, Math.max(0, path.lastIndexOf(".")))),
    calls: 1,
    site: -1,
  })); // prettier-ignore
}

export function parameter(name: string, more: Partial<Parameter> = {}): Parameter {
  return {
    name,
    module: 0,
    free: false,
    shape: [2],
    requires_grad: true,
    reached: 1,
    alive: true,
    trained: true,
    defined: -1,
    ...more,
  };
}

const NONE: DecodedSeries["gradient"] = { low: new Float32Array(), high: new Float32Array() };

export function documentOf(more: Partial<Decoded> = {}): Decoded {
  return {
    format: 3,
    version: "",
    run: {
      name: "run",
      script: "",
      arguments: [],
      started: null,
      ended: null,
      seconds: null,
      steps: 0,
      backwards: 0,
      took: "",
      error: null,
      live: false,
      cut: false,
      level: "",
      torch: "",
      python: "",
      backprobe: "",
      thinned: 0,
      gaps: [],
    }, // prettier-ignore
    findings: [],
    figures: [],
    unseen: [],
    compiled: [],
    sites: [],
    sources: [],
    modules: modulesOf([""]),
    parameters: [],
    steps: stepsOf(0),
    layouts: [],
    calls: [],
    forward: [],
    phases: null,
    memory: null,
    tensors: [],
    ranks: null,
    levels: null,
    ledger: null,
    ...more,
  };
}

/** Steps 0 to `count` - 1 in which nothing was measured. */
export function stepsOf(count: number, more: Partial<Decoded["steps"]> = {}): Decoded["steps"] {
  const missing = (): Float64Array => new Float64Array(count).fill(-1);
  return {
    index: Int32Array.from({ length: count }, (_, i) => i),
    seconds: new Float32Array(count),
    loss: new Float64Array(count).fill(NaN),
    known: new Int32Array(count),
    calls: new Int32Array(count).fill(1),
    scale: new Float64Array(count).fill(1),
    gradient: missing(),
    weight: missing(),
    update: missing(),
    ratio: missing(),
    source: new Int32Array(count),
    recorded: new Int32Array(count).fill(1),
    resident: missing(),
    allocated: missing(),
    graphs: new Int32Array(count),
    call: new Int32Array(count).fill(-1),
    series: {
      exact: true,
      start: Int32Array.from({ length: count }, (_, i) => i),
      size: 1,
      gradient: NONE,
      weight: NONE,
      update: NONE,
    },
    ...more,
  };
}

/** A series of these kinds, written by parameter and then by bucket; the others were not measured. */
export function seriesOf(
  start: readonly number[],
  exact: boolean,
  kinds: Partial<Record<"gradient" | "weight" | "update", { low?: number[]; high: number[] }>>,
): DecodedSeries {
  const all = Math.max(...Object.values(kinds).map((k) => k.high.length), 0);
  const size = all / Math.max(1, start.length);
  const none = new Array<number>(all).fill(-1);
  const turned = (values: readonly number[]) =>
    Float64Array.from(values, (_, i) => values[(i % size) * start.length + Math.floor(i / size)]!);
  const kind = (k?: { low?: number[]; high: number[] }) => ({
    low: turned(k?.low ?? (exact ? [] : none)),
    high: turned(k?.high ?? none),
  }); // prettier-ignore
  return {
    exact,
    start: Int32Array.from(start),
    size,
    gradient: kind(kinds.gradient),
    weight: kind(kinds.weight),
    update: kind(kinds.update),
  };
}

/** A graph: by node its module and the nodes that its gradients go to. */
export function layoutOf(
  nodes: readonly { module: number; to: readonly number[]; leaf?: boolean; parameter?: number; name?: string }[],
): Nodes {
  const edges = [0];
  const to: number[] = [];
  for (const node of nodes) {
    to.push(...node.to);
    edges.push(to.length);
  }
  const strings = [...new Set(nodes.map((n) => n.name ?? "Node"))];
  const column = (of: (node: (typeof nodes)[number]) => number): Int32Array => Int32Array.from(nodes, of);
  return {
    strings,
    name: column((n) => strings.indexOf(n.name ?? "Node")),
    op: column((n) => strings.indexOf(n.name ?? "Node")),
    seq: Int32Array.from(nodes, (n, i) => (n.leaf ? -1 : nodes.length - i)),
    module: column((n) => n.module),
    nth: column(() => 1),
    site: column(() => -1),
    library: column(() => 0),
    stacks: [[]],
    parameter: column((n) => n.parameter ?? -1),
    edges: Int32Array.from(edges),
    to: Int32Array.from(to),
    time: new Float32Array(nodes.length).fill(-1),
    timed: 1,
  };
}

/** A call of layout 0 whose nodes ran in their order. */
export function callOf(nodes: number, more: Partial<Calls> = {}): Calls {
  return {
    step: 0,
    index: 0,
    kind: "Tensor.backward",
    arguments: {},
    site: -1,
    seconds: 1,
    raised: null,
    layout: 0,
    roots: [{ node: 0, shape: [], dtype: "float32", value: 1 }],
    order: Int32Array.from({ length: nodes }, (_, i) => i),
    time: new Float32Array(nodes).fill(-1),
    came: new Float32Array(nodes).fill(-1),
    out: new Float32Array(0),
    marks: new Int32Array(nodes),
    shape: new Int32Array(nodes).fill(-1),
    words: [],
    notes: {},
    ...more,
  };
}

export function memoryOf(rows: readonly Partial<Memory<Floats>["rows"][number]>[]): Memory<Floats> {
  const full = rows.map((r) => ({ module: 0, site: -1, op: "op", dtype: "", bytes: 0, tensors: 1, names: [], ...r }));
  return { step: 0, total: full.reduce((n, r) => n + r.bytes, 0), notes: [], rows: full, curve: null };
}

/** Numbers from 0 to 1 that are the same every time. */
export function draws(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
