/** One step is selected for the whole page. A view that has nothing of it shows the nearest that it has, and says so. */
import { whole } from "../route";
import type { Calls, Forwards, Model } from "./model";

export type At = Readonly<Record<string, string>>;

/** Something that a view shows, and the step that it is of. */
export interface Shown {
  what: string;
  step: number;
  /** Why it is not of the selected step. */
  why?: "not measured at" | "not in this page for";
}

/** Marks of nodes that mean that something went wrong; see `Call.marks`. */
export const BAD = 16 | 2 | 4 | 1;

export const wrong = (call: Calls): boolean => call.raised !== null || call.marks.some((one) => one & BAD);

/** The place in `steps` of the step nearest to `step` among those that `has` names, the earlier one of two; -1: none. */
export function nearest(steps: ArrayLike<number>, step: number, has: (i: number) => boolean = () => true): number {
  let best = -1;
  for (let i = 0; i < steps.length; i++) {
    if (has(i) && (best < 0 || Math.abs(steps[i]! - step) < Math.abs(steps[best]! - step))) best = i;
  }
  return best;
}

/** The step that the address names, itself or by a call; else that of the first finding that has one, of a call in
 *  which something went wrong, or the last one; of these a recorded step that is near. */
export function selected(model: Model, at: At): number {
  const { calls } = model.doc;
  const named = whole(at.step, Number.MAX_SAFE_INTEGER, -1);
  if (named >= 0) return named;
  const call = calls[whole(at.call, calls.length, -1)];
  return call ? call.step : recordedNear(model, unnamed(model));
}

function unnamed({ doc: { calls, findings, steps } }: Model): number {
  for (const finding of findings) {
    const step = finding.step ?? calls[finding.at?.[0] ?? -1]?.step;
    if (step !== undefined) return step;
  }
  return calls.find(wrong)?.step ?? steps.index.at(-1) ?? calls.at(-1)?.step ?? 0;
}

/** `step` if something of it was recorded, else the last recorded one before it, or the next; `step` where none was. */
function recordedNear(model: Model, step: number): number {
  const recorded = recordedSteps(model);
  if (recorded === null || recorded.includes(step) || model.doc.calls.some((call) => call.step === step)) return step;
  return recorded.findLast((one) => one < step) ?? recorded[0]!;
}

/** The call to show: the one that the address names if it is of the selected step, else one of that step, a finding's or
 *  one that went wrong first, else one of the nearest step. -1: the page has none. */
export function callAt(model: Model, at: At): number {
  const { calls, findings } = model.doc;
  const step = selected(model, at);
  const named = whole(at.call, calls.length, -1);
  if (named >= 0 && calls[named]!.step === step) return named;
  const found = nearest(
    calls.map((call) => call.step),
    step,
  );
  if (found < 0) return -1;
  const there = calls[found]!.step;
  const of = findings.find((one) => calls[one.at?.[0] ?? -1]?.step === there)?.at?.[0];
  const bad = calls.findIndex((call) => call.step === there && wrong(call));
  return of ?? (bad >= 0 ? bad : found);
}

/** Norms of what modules returned, as measured in the step nearest to `step`; null: in none. */
export function forwardAt({ doc }: Pick<Model, "doc">, step: number): Forwards | null {
  const steps = doc.forward.map((one) => one.step);
  return doc.forward[nearest(steps, step)] ?? null;
}

/** What a view of one call shows. */
export function callShown(model: Model, at: At): Shown[] {
  const call = model.doc.calls[callAt(model, at)];
  return call ? [{ what: "graph", step: call.step, why: "not in this page for" }] : [];
}

/** What a view of a call's graph shows: norms of outputs too. */
export function graphShown(model: Model, at: At): Shown[] {
  const call = model.doc.calls[callAt(model, at)];
  const forward = call && forwardAt(model, call.step);
  return [...callShown(model, at), ...(forward ? [{ what: "forward norms", step: forward.step }] : [])];
}

/** The steps whose nodes were recorded, in order; null where that is all of them, or none. */
export function recordedSteps({ doc }: Pick<Model, "doc">): Int32Array | null {
  const { index, recorded } = doc.steps;
  const found = index.filter((_, i) => recorded[i] === 1);
  return found.length === 0 || found.length === index.length ? null : found;
}

/** The steps that the page has calls of, in order. */
export function callSteps({ doc }: Pick<Model, "doc">): Int32Array {
  return Int32Array.from(new Set(doc.calls.map((call) => call.step))).sort();
}

/** The change of the address that goes to another step: what names nodes of one graph goes where the other is not alike. */
export function toStep(model: Model, at: At, step: number): Record<string, string> {
  const { calls } = model.doc;
  const change = { step: String(step), call: "" };
  const [before, after] = [calls[callAt(model, at)], calls[callAt(model, { ...at, ...change })]];
  if (before?.layout === after?.layout) return change;
  return { ...change, node: "", group: "", nth: "", open: "", range: "" };
}

/** "forward norms of step 0: not measured at step 40", for what is not of the selected step; alike ones together. */
export function elsewhere(shown: readonly Shown[], step: number): string[] {
  const said = new Map<string, string[]>();
  for (const one of shown) {
    if (one.step === step) continue;
    const where = `of step ${one.step}: ${one.why ?? "not measured at"} step ${step}`;
    said.set(where, [...(said.get(where) ?? []), one.what]);
  }
  return [...said].map(([where, what]) => `${listed(what)} ${where}`);
}

/** "a, b and c". */
export function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
