/** The curves of the steps view, and what is said of them. */

import { curveColour, DASHES } from "../../charts/colour";
import type { Series } from "../../charts/line";
import { normCurve, plainCurve } from "../../charts/marks";
import type { Decoded } from "../../data/document";
import { gradientSaid, lossSaid } from "../../data/said";
import { count, seconds } from "../../parts/words";
import { type Metric, parameterCurve } from "../flow/values";

export interface ChartOf {
  key: string;
  title: string;
  /** What the values are. */
  unit: string;
  log: boolean;
  /** What the values are, where that is not plain; "". */
  note: string;
  /** Where its axis ends although some values are greater, or null. */
  most: number | null;
  series: Series[];
}

/** The losses that are known. */
export function lossSeries({ loss, known }: Decoded["steps"]): Series {
  return { name: "loss", curve: plainCurve(loss, (i) => known[i] === 1), colour: (p) => p.ink };
}

export function gradientSeries({ gradient }: Decoded["steps"]): Series {
  return { name: "gradient", curve: normCurve(gradient), colour: (p) => p.backward };
}

/** Whether there is anything to draw of a curve. */
export function isKnown({ curve }: Series): boolean {
  return curve.stretches.length > 0 || curve.values.some((v) => v !== null);
}

/** Charts of the whole run. One that holds nothing is left out. */
export function totals({ steps }: Decoded): ChartOf[] {
  const usual = usualMost(steps.seconds);
  const made: ChartOf[] = [
    {
      key: "loss",
      title: "Loss",
      unit: "loss",
      log: false,
      note: sentence("", lossSaid(steps)),
      most: null,
      series: [lossSeries(steps)],
    },
    {
      key: "norms",
      title: "Norms over all parameters",
      unit: "2-norm, logarithmic",
      log: true,
      note: sentence("The gradient is ", gradientSaid(steps)),
      most: null,
      series: [
        gradientSeries(steps),
        { name: "weight", curve: normCurve(steps.weight), colour: (p) => p.forward, dash: [6, 3] },
        { name: "update", curve: normCurve(steps.update), colour: (p) => p.update, dash: [2, 3] },
      ],
    },
    {
      key: "ratio",
      title: "Update / weight, median over parameters",
      unit: "ratio, logarithmic",
      log: true,
      note: "",
      most: null,
      series: [{ name: "update / weight", curve: normCurve(steps.ratio), colour: (p) => p.update }],
    },
    {
      key: "seconds",
      title: "Time per step",
      unit: "time",
      log: false,
      note: usual === null ? "" : beyond(steps, usual),
      most: usual,
      series: [{ name: "time", curve: plainCurve(steps.seconds), colour: (p) => p.quiet }],
    },
  ];
  return made.filter((c) => c.series.some(isKnown));
}

/** Where an axis of times ends that a few steps (the first, with its loading; one that waited) would stretch until the
 *  others lie on the ground: twice what 19 of 20 steps stay below. null: nothing sticks out so far. */
export function usualMost(seconds: ArrayLike<number>): number | null {
  const sorted = Float64Array.from(seconds).sort();
  const usual = 2 * (sorted[Math.floor(0.95 * (sorted.length - 1))] ?? 0);
  return usual > 0 && sorted.at(-1)! > 3 * usual ? usual : null;
}

/** Which steps leave the axis at the top. */
function beyond({ index, seconds: took }: Decoded["steps"], most: number): string {
  const out = Array.from(index.keys()).filter((i) => took[i]! > most);
  const longest = out.reduce((a, b) => (took[b]! > took[a]! ? b : a));
  const others =
    out.length > 1 ? `, the longest of ${out.length} that took more than is drawn` : ", more than is drawn";
  return `Step ${index[longest]} took ${seconds(took[longest]!)}${others}.`;
}

function sentence(begin: string, what: string): string {
  const text = begin + what;
  return what && `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** Whether a curve can stand on a logarithmic axis: no value below zero. */
export function canLog(series: readonly Series[]): boolean {
  return series.every((s) => s.curve.values.every((v) => v === null || v > 0));
}

/** Curves of chosen parameters: the greatest of each bucket, with a band down to the least where they were thinned. */
export function chosen(doc: Decoded, metric: Metric, parameters: readonly number[]): Series[] {
  return parameters.map((p, k) => {
    const { low, high } = parameterCurve(doc, metric, p);
    const colour: Series["colour"] = (palette) => curveColour(k, palette.dark);
    return {
      name: doc.parameters[p]!.name,
      curve: normCurve(high),
      colour,
      dash: DASHES[k]!,
      ...(doc.steps.series.exact ? {} : { low: normCurve(low) }),
    };
  });
}

/** How far the norms by parameter were thinned, in words; "" where they are exact. */
export function thinning({ steps }: Decoded): string {
  const { exact, start } = steps.series;
  if (exact || start.length < 2) return "";
  return `Thinned to fit in a page: each point covers ${count(start[1]! - start[0]!, "step")}, drawn from their least to their greatest. Totals above are exact.`;
}

/** The first or last value of a curve that is known, in words. */
export function edge({ curve }: Series, last: boolean, text: (v: number) => string): string {
  const value = last ? curve.values.findLast((v) => v !== null) : curve.values.find((v) => v !== null);
  return value === null || value === undefined ? "nothing" : text(value);
}

type Cell = string | number;

/** Curves as columns and rows: what was not measured is empty; a thinned curve has its least values beside it. */
export function csvTable(x: ArrayLike<number>, series: readonly Series[]): [string[], Cell[][]] {
  const columns = series.flatMap((s) =>
    s.low
      ? [[`${s.name}, least`, cells(s.low)] as const, [`${s.name}, greatest`, cells(s.curve)] as const]
      : [[s.name, cells(s.curve)] as const],
  );
  return [
    ["step", ...columns.map(([name]) => name)],
    Array.from(x, (step, i) => [step, ...columns.map(([, values]) => values[i]!)]),
  ];
}

function cells({ values, stretches }: Series["curve"]): Cell[] {
  const out: Cell[] = values.map((v) => v ?? "");
  const words = { nan: "NaN", inf: "Infinity", zero: 0 } as const;
  for (const { sort, first, last } of stretches) out.fill(words[sort], first, last + 1);
  return out;
}
