/**
 * The document that a page shows: what `backprobe/report/document.py` writes. Both sides hold `FORMAT`.
 *
 * Numbers come as columns. In the JSON a column is `{t, b}`: the type and the base64 of its little-endian bytes. Norms
 * are never negative: -1 says that one was not measured, and NaN and infinity mean themselves. Indexes are -1 where
 * there is nothing. Elsewhere numbers that JSON does not know are the strings "NaN", "Infinity" and "-Infinity". Paths
 * of modules are as `named_modules()` spells them; "" is the outermost module, or outside all.
 */
export const FORMAT = 3;

export type Packed = { t: "f32" | "f64" | "i32" | "u8"; b: string };
/** A number; as a string where JSON has none. `Number(x)` is right for both. */
export type Num = number | string;
export type Floats = Float32Array | Float64Array;

/** The document as it is in the file: `C` is how a column looks there, and `Decoded` has typed arrays instead. */
export interface Document<F, I> {
  format: number;
  /** Changes when the run has gone on; the served page asks for it. */
  version: string;
  run: Run;
  findings: Finding[];
  /** The main figures, a sentence each. */
  figures: string[];
  unseen: { what: string; count: number; note: string }[];
  /** Functions that torch.compile compiled, or tried to; those that took longest first. */
  compiled: Compiled[];
  /** Every source line that anything refers to. */
  sites: Site[];
  sources: Source[];
  modules: Module[];
  parameters: Parameter[];
  steps: Steps<F, I>;
  layouts: Layout<F, I>[];
  calls: Call<F, I>[];
  /** Norms of what modules returned, in the steps where they were measured. */
  forward: Forward<F, I>[];
  /** The parts of a typical step; null where no step was timed. */
  phases: Phases | null;
  memory: Memory<F> | null;
  tensors: Tensor<F>[];
  /** The processes of a run of several; null for one that was alone. */
  ranks: Ranks<F> | null;
  /** Statistics by layer; null where none were measured. */
  levels: Levels<F, I> | null;
  /** What happened to parameters between steps of their optimizers; null where that was not observed. */
  ledger: Ledger<I> | null;
}

export interface Compiled {
  /** The function, with its file and line; of the rest of one whose graph broke the line after which it goes on. */
  name: string;
  site: number;
  graphs: number;
  /** Operations of the last graph. */
  ops: number;
  /** Graphs of its backward. */
  backwards: number;
  /** Graphs that were read from torch's cache. */
  cached: number;
  /** What compiling took. */
  seconds: number;
  /** The first step in which it was compiled. */
  step: number;
  /** Why it runs in Python after all; "" where it does not. */
  python: string;
  breaks: { reason: string; site: number }[];
  broken: number;
  /** The last times that it was compiled again. */
  again: { step: number; guard: string; site: number }[];
  recompiled: number;
}

export interface Run {
  name: string;
  script: string;
  arguments: string[];
  /** Seconds since 1970, or null. */
  started: number | null;
  ended: number | null;
  seconds: number | null;
  steps: number;
  backwards: number;
  /** What recording took, in a sentence or two; "" if that is not known. */
  took: string;
  error: string | null;
  /** The run is still going on (as far as can be told). */
  live: boolean;
  /** It ended without saying so: killed, or still running. */
  cut: boolean;
  level: string;
  torch: string;
  python: string;
  backprobe: string;
  /** Steps whose nodes were dropped to keep the run small. */
  thinned: number;
  /** What was not watched, where that is so. */
  gaps: string[];
}

export interface Site {
  /** From the working folder where it lies inside it; a library's from the name of its package on. */
  file: string;
  line: number;
  function: string;
  text: string;
}

export interface Source {
  file: string;
  /** Line by line; null where the file was not kept. */
  lines: string[];
  /** It is a library's, not the user's. */
  library: boolean;
}

export interface Finding {
  kind: string;
  severity: "error" | "warning" | "info";
  title: string;
  confidence: string;
  module: string | null;
  node: string | null;
  tensor: string | null;
  parameters: string[];
  step: number | null;
  rank: number | null;
  /** `meaning`: what the line has to do with the finding, in words; empty for a role of a plugin. */
  sites: { role: string; meaning: string; site: number }[];
  evidence: Record<string, unknown>;
  advice: string;
  /** Node of a call that the finding is about, where the page has that call: [call, node]. */
  at: [number, number] | null;
}

/** Modules in the order of their first call, a parent before its children. Index 0 is the outermost one, path "". */
export interface Module {
  path: string;
  class: string;
  /** -1 for index 0. */
  parent: number;
  /** Calls in the first recorded step that called it. */
  calls: number;
  /** Where it is called. */
  site: number;
}

/** In forward order: by their module. */
export interface Parameter {
  name: string;
  /** 0 for one that is on no module. */
  module: number;
  /** It is on no module. */
  free: boolean;
  /** `[-1]`: not known. */
  shape: number[];
  requires_grad: boolean;
  /** Backward calls that gave it a gradient. */
  reached: number;
  /** Whether any of them was not exactly zero. */
  alive: boolean;
  /** Whether an optimizer holds it; null where no optimizer stepped. */
  trained: boolean | null;
  defined: number;
}

export interface Steps<F, I> {
  index: I;
  seconds: F;
  /** NaN where `known` is 0. */
  loss: F;
  /** 1 where the loss of the step is known. */
  known: I;
  /** The loss is the sum over this many backward calls, without this factor of a GradScaler. */
  calls: I;
  scale: F;
  /** Norms over all parameters together; -1: not measured, or not of all of them. */
  gradient: F;
  weight: F;
  update: F;
  /** Median over parameters of update / weight. */
  ratio: F;
  /** Gradients are: 0 not known; 1 as backward gave them; 2 as the optimizer met them. */
  source: I;
  /** 1 where nodes of the step were recorded: a budget leaves steps out. */
  recorded: I;
  /** Bytes of the process in memory, and of tensors on CUDA devices, when the step was over; -1: not known. */
  resident: F;
  allocated: F;
  /** Graphs of steps before the last one that were alive when the step began. */
  graphs: I;
  /** First entry of `calls` of that step, or -1. */
  call: I;
  series: Series<F, I>;
}

/**
 * Norms by parameter over the steps. Where there are too many steps for a page, neighbours are put together in buckets:
 * bucket `k` covers the positions `start[k]` to `start[k + 1]` (or the end) of `steps.index`. `low` and `high` are the least
 * and the greatest norm in it, by bucket and then by parameter: entry `k * size + p`, so that a run that goes on adds to
 * the end. In an exact series each bucket is one step and `low` is empty. A bucket with a value that is not finite has it
 * as `high`.
 */
export interface Series<F, I> {
  exact: boolean;
  start: I;
  /** Parameters in a bucket. */
  size: number;
  gradient: { low: F; high: F };
  weight: { low: F; high: F };
  update: { low: F; high: F };
}

/** The nodes of a graph, roots first. Calls with the same graph share it. */
export interface Layout<F, I> {
  strings: string[];
  /** Index into `strings` of the node's type, of the forward's op. */
  name: I;
  op: I;
  /** Sequence number from the lowest in the graph; -1 for nodes that accumulate into leaves. */
  seq: I;
  /** Index into `modules`. */
  module: I;
  /** Which call of its module made it, from 1. */
  nth: I;
  /** The user's line. */
  site: I;
  /** Index into `stacks`: the lines of libraries between that line and the operation, each called by the one before it. */
  library: I;
  stacks: number[][];
  /** Index into `parameters`. */
  parameter: I;
  /** Edges of node i: `edges[i]` to `edges[i + 1]` in `to` and in `Call.out`. The gradient goes along them. */
  edges: I;
  /** The node that gets the gradient, or -1. */
  to: I;
  /** Seconds of each node, the mean over the `timed` calls of this page with this graph; -1: not measured. */
  time: F;
  timed: number;
}

/** One backward call. */
export interface Call<F, I> {
  step: number;
  /** Its number in the run. */
  index: number;
  kind: string;
  arguments: Record<string, string>;
  site: number;
  seconds: number;
  /** "Type: text" where it raised. */
  raised: string | null;
  layout: number;
  roots: { node: number; shape: number[]; dtype: string; value: Num | null }[];
  /** In which place the node ran, from 0; -1: it did not run. */
  order: I;
  /** Seconds; -1: not measured. */
  time: F;
  /** Norm of all gradients that came in, together; -1: not measured. */
  came: F;
  /** By edge: norm of the gradient that went along it; -1: not measured. */
  out: F;
  /** Bits: 1 a gradient that came in is not finite; 2 the node made the first such; 4 its forward result was not finite;
   *  8 every gradient that came in was exactly zero; 16 the call raised here. */
  marks: I;
  /** By node, index into `words`: shape and dtype of the first gradient that came in, "64x10 float32"; -1: not known. */
  shape: I;
  words: string[];
  /** What is known of nodes with a mark: by node, a few lines. */
  notes: Record<string, string[]>;
}

export interface Forward<F, I> {
  /** The step in which they were measured. */
  step: number;
  module: I;
  /** Which call of the module, from 1. */
  nth: I;
  norm: F;
}

/** Median seconds of each part of the timed steps: before the forward, forward, backward, optimizer, and the rest. */
export interface Phases {
  steps: number;
  seconds: number[];
}

/** What autograd kept for backward in one step (`--check memory`). */
export interface Memory<F> {
  /** The step; -1: not known. */
  step: number;
  total: number;
  /** Sentences about what is not counted, and what was not known. */
  notes: string[];
  rows: { module: number; site: number; op: string; dtype: string; bytes: number; tensors: number; names: string[] }[];
  /** Bytes still kept after each node of the backward, or null. */
  curve: F | null;
}

/** A tensor that was looked at: a histogram of its values and a small picture of them. */
export interface Tensor<F> {
  name: string;
  /** "output", "gradient", "weight", "weight gradient" or what a person called it. */
  kind: string;
  module: number;
  step: number;
  shape: number[];
  dtype: string;
  /** Counts of values between `edges`, one more than counts; values that are not finite apart. */
  edges: F;
  counts: F;
  mean: Num;
  std: Num;
  min: Num;
  max: Num;
  zeros: number;
  nan: number;
  inf: number;
  numel: number;
  /** Means over cells of the tensor as a matrix (all dimensions but the last one together), or null. */
  map: { rows: number; columns: number; values: F } | null;
}

/** Processes side by side. */
export interface Ranks<F> {
  /** Ranks first, in their order. */
  rows: RankRow[];
  pictures: RankPictures<F> | null;
  waits: RankWait[];
}

export interface RankRow {
  rank: number | null;
  pid: number | null;
  steps: number;
  recorded: number | null;
  restart: number;
  /** Of the last step. */
  loss: Num | null;
  /** How it ended, in a word or two. */
  ended: string;
  failed: boolean;
  /** Index of the first finding that is about it, or -1. */
  finding: number;
  /** Whether the page's steps are its own. */
  shown: boolean;
}

/**
 * What each step took and gave in each rank: entry `k * ranks.length + r`. Column `k` covers the steps `k * width` to
 * `(k + 1) * width - 1`, with the greatest of them, and NaN before all. -Infinity: not known.
 */
export interface RankPictures<F> {
  ranks: number[];
  width: number;
  count: number;
  seconds: F;
  gradient: F;
  loss: F;
}

export interface RankWait {
  rank: number | null;
  op: string;
  /** What the script had called, where that is not the operation: "backward". */
  inside: string;
  group: string;
  number: number | null;
  site: number;
  /** Seconds since the first rank began, or null. */
  began: number | null;
  seconds: number;
  /** "returned", "raised" or "never". */
  ended: string;
}

/**
 * Statistics by layer over the steps that were looked at. Column `k` covers `width` looks from the one in step `steps[k]`
 * on; of these it has NaN, or else the greatest (the least, where a kind says so).
 */
export interface Levels<F, I> {
  steps: I;
  /** The last step that was looked at. */
  last: number;
  looks: number;
  width: number;
  kinds: LevelKind<F>[];
  alarms: LevelAlarm[];
}

export interface LevelKind<F> {
  quantity: string;
  title: string;
  /** Parameters, modules or optimizers, in forward order. */
  names: string[];
  /** The least of a column is kept, and it is what to look at. */
  least: boolean;
  /** The bound is one for the layer in the middle. */
  middle: boolean;
  /** By column and then name: entry `k * names.length + n`. NaN: not finite; -Infinity: not known. */
  values: F;
  /** By name: beyond it a level is an alarm, in several looks in a row; -Infinity: there is none. */
  bound: F;
}

export interface LevelAlarm {
  kind: string;
  quantity: string;
  name: string;
  /** The step in which it was noticed, and the first one beyond its bound. */
  step: number;
  since: number;
  value: Num;
  text: string;
  /** Index of the finding that tells it, or -1. */
  finding: number;
}

/** Parameters to which the same happened share an account. */
export interface Ledger<I> {
  /** Optimizers that hold them, with the line that created each and how many of its periods are in no row. */
  optimizers: { name: string; made: number; omitted: number }[];
  /** By optimizer, then by first step. */
  rows: LedgerRow[];
  events: LedgerEvent[];
  /** Indexes into `rows`, and the number of rows that the page leaves out. */
  accounts: { rows: number[]; cut: number }[];
  /** By parameter, index into `accounts`, or -1. */
  of: I;
  /** What some steps changed. */
  changes: LedgerChanges[];
  buffers: LedgerBuffer[];
}

/** Changes of a parameter by steps of one optimizer. */
export interface LedgerChanges {
  parameter: number;
  /** Index into `optimizers`. */
  optimizer: number;
  /** The parts of the changes are known. */
  split: boolean;
  /** Cells of a row: step, change, gradient, momentum, weight decay, the rest. */
  rows: string[][];
}

/** Buffers of one module to which the same happened. */
export interface LedgerBuffer {
  /** Their module. */
  module: string;
  title: string;
  /** Steps, times, what happened, index of the line or -1. */
  rows: [string, string, string, number][];
}

/** Periods with the same events. A period lasts from one step of the optimizer to its next. */
export interface LedgerRow {
  /** Index into `optimizers`. */
  optimizer: number;
  /** Indexes into `events`, in the order in which they were observed; the last one is the optimizer's step. */
  events: number[];
  /** How many periods, and the steps in which the first and the last of them ended. */
  periods: number;
  first: number;
  last: number;
  /** In how many of them the step changed the weight, and in how many it did not; in the others the values of the
   * weight were not compared. */
  moved: number;
  kept: number;
  /** Why the weight stayed, or "". */
  why: string;
  /** `requires_grad` was off when the optimizer stepped. */
  frozen: boolean;
}

export interface LedgerEvent {
  sign: "gradient" | "clear" | "write" | "other" | "weight" | "step";
  text: string;
  /** The line that did it, or -1. */
  site: number;
}

export type Raw = Document<Packed, Packed>;
export type Decoded = Document<Floats, Int32Array>;
