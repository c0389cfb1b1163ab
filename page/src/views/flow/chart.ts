/** From the address to what the chart and the table show. */

import { sortOf } from "../../charts/scale";
import type { Model } from "../../data/model";
import { type At, callAt, forwardAt, type Shown } from "../../data/step";
import { norm, number } from "../../parts/words";
import { type Item, moduleItems, parameterItems } from "./items";
import { backwardNorms, forwardNorms } from "./modules";
import type { PlotSeries, State } from "./shapes";
import {
  type Band,
  beginnings,
  bucketOf,
  condition,
  METRICS,
  type Metric,
  measuredStep,
  parameterBand,
  positionOf,
} from "./values";

export type By = "parameters" | "modules";

export interface Chart {
  items: Item[];
  series: PlotSeries[];
  states: State[];
  /** What was begun, in words. */
  summary: string[];
  /** What the numbers are of, in words. */
  note: string;
}

const COLOURS = {
  gradient: "var(--backward)",
  weight: "var(--forward)",
  update: "var(--update)",
  ratio: "var(--update)",
} as const;
const DASHES = { gradient: "", weight: "6 3", update: "2 3", ratio: "" } as const;
export const WORDS = { gradient: "gradient", weight: "weight", update: "update", ratio: "update / weight" } as const;

/** Buckets of the steps, the first and the last one, both in. */
export type Buckets = (metric: Metric) => readonly [number, number];

/** By metric: the buckets of a range of steps, or the one of the nearest step in which it was measured. */
export function bucketsOf({ doc }: Model, step: number, band: readonly [number, number] | null): Buckets {
  const bucket = (n: number): number => bucketOf(doc.steps.series.start, positionOf(doc.steps.index, n));
  return (metric) => {
    const near = band ? -1 : measuredStep(doc, metric, step);
    const [from, to] = band ?? (near < 0 ? [step, step] : [near, near]);
    return [bucket(from), bucket(to)];
  };
}

/** Positions of the steps whose gradients are shown, the first and the last one, both in. */
export function places({ doc }: Model, step: number, band: readonly [number, number] | null): [number, number] {
  const near = measuredStep(doc, "gradient", step);
  const [from, to] = band ?? (near < 0 ? [step, step] : [near, near]);
  return [positionOf(doc.steps.index, from), positionOf(doc.steps.index, to)];
}

const PLURAL: Record<Metric, string> = {
  gradient: "gradients",
  weight: "weights",
  update: "updates",
  ratio: "update / weight",
};

/** What the chart and the table show, and of which steps. */
export function flowShown(model: Model, at: At, step: number): Shown[] {
  const { doc } = model;
  if (at.by === "modules") {
    const forward = forwardAt(model, step);
    const call = doc.calls[callAt(model, at)];
    return [
      ...(forward && at.show !== "backward" ? [{ what: "forward norms", step: forward.step }] : []),
      ...(call && at.show !== "forward"
        ? [{ what: "gradients", step: call.step, why: "not in this page for" as const }]
        : []),
    ];
  }
  if (at.from && at.to) return [];
  return METRICS.flatMap((metric) => {
    const found = measuredStep(doc, metric, step);
    return found < 0 ? [] : [{ what: PLURAL[metric], step: found }];
  });
}

export function parameterChart(model: Model, metrics: readonly Metric[], buckets: Buckets): Chart {
  const { doc } = model;
  const items = parameterItems(model);
  const series = metrics.map((m) => ({
    name: WORDS[m],
    colour: COLOURS[m],
    dash: DASHES[m],
    band: parameterBand(doc, m, ...buckets(m)),
    wide: buckets(m)[0] !== buckets(m)[1] || !doc.steps.series.exact,
  }));
  const gradient = metrics.includes("gradient")
    ? series[metrics.indexOf("gradient")]!.band
    : parameterBand(doc, "gradient", ...buckets("gradient"));
  const states = parameterStates(model, gradient, parameterBand(doc, "weight", ...buckets("weight")));
  return { items, series, states, summary: parameterSummary(model, gradient, items), note: thinned(model) };
}

/** Words for parameters without a gradient. Where no gradient was measured at all, nothing is said about one. */
function parameterStates(model: Model, gradient: Band, weight: Band): State[] {
  const measured = gradient.high.some((v) => !(v < 0));
  return model.doc.parameters.map((p, i) => {
    const words = condition(p, !(gradient.high[i]! < 0));
    if (words === "frozen" || words === "never reached") return words;
    return measured && gradient.high[i]! < 0 && !(weight.high[i]! < 0) ? "no gradient" : "";
  });
}

function parameterSummary(model: Model, gradient: Band, items: readonly Item[]): string[] {
  const said: string[] = [];
  const bad = items.filter((item) => !Number.isFinite(gradient.high[item.index]));
  if (bad.length > 0) {
    // The backward runs from the last parameter to the first: the last bad one came first.
    const begin = bad[bad.length - 1]!;
    const { nonfinite } = beginnings(model.doc, begin.index);
    const word = sortOf(gradient.high[begin.index]) === "nan" ? "NaN" : "Inf";
    said.push(
      `${bad.length} of ${items.length} gradients are not finite. In the order of the backward, right to left, the first is ${begin.name} (${word}${nonfinite >= 0 ? `, since step ${nonfinite}` : ""}).`,
    );
  }
  const zero = items.filter((item) => gradient.high[item.index] === 0);
  if (zero.length > 0) {
    said.push(
      `${zero.length} of ${items.length} gradients are exactly zero. In the order of the backward the first is ${zero[zero.length - 1]!.name}.`,
    );
  }
  return said;
}

function thinned(model: Model): string {
  const { series, index } = model.doc.steps;
  if (series.exact) return "";
  const width = (series.start[1] ?? index.length) - series.start[0]!;
  return `There are too many steps for every norm to be in this page: each value stands for ${width} steps, drawn from their least to their greatest.`;
}

/** Norms at the boundaries of modules, in the measured step nearest to `step`. */
export function moduleChart(model: Model, which: string, step: number, at: At): Chart {
  const { doc } = model;
  const items = moduleItems(model);
  const forward = forwardAt(model, step);
  const call = doc.calls[callAt(model, at)] ?? null;
  const one = (name: string, colour: string, dash: string, values: Float64Array | null): PlotSeries[] => {
    if (!values) return [];
    const seen = Float64Array.from(items, (item) => values[item.index]!);
    return [{ name, colour, dash, band: { low: seen, middle: seen, high: seen }, wide: false }];
  };
  const series = [
    ...(which === "backward"
      ? []
      : one("output (forward)", "var(--forward)", "6 3", forward && forwardNorms(model, forward))),
    ...(which === "forward"
      ? []
      : one("gradient of output (backward)", "var(--backward)", "", call && backwardNorms(model, call))),
  ];
  const parts = [
    which !== "backward" && forward
      ? `outputs as measured in step ${forward.step}${forward.step === step ? "" : `, not in step ${step}`}`
      : "",
    which !== "forward" && call ? `gradients of backward call ${call.index}, step ${call.step}` : "",
  ].filter(Boolean);
  const note = `${parts.join("; ")}${parts.length ? ". " : ""}A module that was called several times counts as one: all its calls together.`;
  return {
    items,
    series,
    states: items.map(() => ""),
    summary: moduleSummary(series, items),
    note: note.charAt(0).toUpperCase() + note.slice(1),
  };
}

function moduleSummary(series: readonly PlotSeries[], items: readonly Item[]): string[] {
  return series.flatMap((s) => {
    const bad = items.filter((_, i) => !Number.isFinite(s.band.high[i]));
    if (bad.length === 0) return [];
    const back = s.name.startsWith("gradient");
    return [
      `${s.name}: not finite in ${bad.length} of ${items.length} modules; the first is ${(back ? bad[bad.length - 1]! : bad[0]!).name}.`,
    ];
  });
}

/** A value or a band of item `i`, in words. */
export function said({ band, wide }: PlotSeries, i: number): string {
  const [low, middle, high] = [band.low[i]!, band.middle[i]!, band.high[i]!];
  if (!wide || high < 0) return norm(high);
  if (!Number.isFinite(high))
    return sortOf(low) === "number" ? `${number(low)} and more, also ${number(high)}` : number(high);
  return low === high ? number(high) : `${number(low)} · ${number(middle)} · ${number(high)}`;
}
