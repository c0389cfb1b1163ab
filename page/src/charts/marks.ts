/** Curves for a chart over steps: what is drawn as a line, and what is drawn as a sign because it has no place on the axis. */
import { type Sort, sortOf } from "./scale";

/** Stretches of steps whose value is not a number: positions `first` to `last` (both in), in order. */
export interface Stretch {
  sort: Exclude<Sort, "number" | "missing">;
  first: number;
  last: number;
}

export interface Curve {
  /** null where there is a gap. */
  values: (number | null)[];
  stretches: Stretch[];
}

/** A curve of norms on a logarithmic axis: zeros and values that are not finite become stretches, -1 a gap. */
export function normCurve(values: ArrayLike<number>): Curve {
  return curve(values, (v) => sortOf(v));
}

/** A curve of any numbers on a linear axis; those that `known` denies are gaps. */
export function plainCurve(values: ArrayLike<number>, known: (i: number) => boolean = () => true): Curve {
  return curve(values, (v, i) => {
    if (!known(i)) return "missing";
    if (Number.isNaN(v)) return "nan";
    return Number.isFinite(v) ? "number" : "inf";
  });
}

function curve(values: ArrayLike<number>, sort: (v: number, i: number) => Sort): Curve {
  const out: (number | null)[] = new Array<number | null>(values.length);
  const stretches: Stretch[] = [];
  for (let i = 0; i < values.length; i++) {
    const v = values[i]!;
    const kind = sort(v, i);
    out[i] = kind === "number" ? v : null;
    if (kind === "number" || kind === "missing") continue;
    const before = stretches[stretches.length - 1];
    if (before?.sort === kind && before.last === i - 1) before.last = i;
    else stretches.push({ sort: kind, first: i, last: i });
  }
  return { values: out, stretches };
}
