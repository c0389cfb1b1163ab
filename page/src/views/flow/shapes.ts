/** The chart's shapes as SVG paths, one for each series and kind: hundreds of parameters are a few elements. */
import { sortOf } from "../../charts/scale";
import type { Band } from "./values";

export interface PlotSeries {
  name: string;
  colour: string;
  dash: string;
  band: Band;
  /** It spans several steps: least and greatest are drawn. */
  wide: boolean;
}

/** Why an item has no norm, in words; "" where nothing is wrong with it. It names the item's row under the axis. */
export type State = "" | "frozen" | "never reached" | "no gradient";

type Place = (value: number) => number;
type Seen = { first: number; last: number };

const at = (n: number): string => n.toFixed(1);

/** A line through what is measured; a gap where something is not a positive number. */
export function linePath(values: Float64Array, x: Place, y: Place, { first, last }: Seen): string {
  let path = "";
  let open = false;
  for (let i = first; i <= last; i++) {
    const drawn = sortOf(values[i]) === "number";
    if (drawn) path += `${open ? "L" : "M"}${at(x(i))} ${at(y(values[i]!))}`;
    open = drawn;
  }
  return path;
}

/** Dots: strokes of no length with round ends. */
export function dotPath(values: Float64Array, x: Place, y: Place, { first, last }: Seen): string {
  let path = "";
  for (let i = first; i <= last; i++) if (sortOf(values[i]) === "number") path += `M${at(x(i))} ${at(y(values[i]!))}h0`;
  return path;
}

/** From the least to the greatest. */
export function bandPath(band: Band, x: Place, y: Place, { first, last }: Seen): string {
  let path = "";
  for (let i = first; i <= last; i++) {
    const [low, high] = [band.low[i], band.high[i]];
    // Where it was not finite in one step, the middle and the sign say more than a bar without an end.
    if (sortOf(low) === "number" && sortOf(high) === "number") path += `M${at(x(i))} ${at(y(low!))}V${at(y(high!))}`;
  }
  return path;
}

/** Crosses for NaN, triangles for infinity. */
export function signPath(
  values: Float64Array,
  sort: "nan" | "inf",
  x: Place,
  y: number,
  { first, last }: Seen,
): string {
  let path = "";
  for (let i = first; i <= last; i++) {
    if (sortOf(values[i]) !== sort) continue;
    const c = x(i);
    path += sort === "nan" ? `M${at(c - 3.5)} ${at(y - 3.5)}l7 7m0 -7l-7 7` : `M${at(c - 4)} ${at(y + 3.5)}l4 -7l4 7z`;
  }
  return path;
}

export interface Rows {
  above: string[];
  below: string[];
  /** The marks of a row under the axis. */
  marks: (row: string, x: Place, y: number, seen: Seen) => string;
}

/** The rows that are needed: a person is not shown an empty row for zeros. */
export function rowsOf(series: readonly PlotSeries[], states: readonly State[]): Rows {
  const nonfinite = series.some((s) => s.band.high.some((v) => !Number.isFinite(v)));
  const zero = states.map((_, i) => series.some((s) => s.band.low[i] === 0 || s.band.middle[i] === 0));
  const words = ["no gradient", "never reached", "frozen"].filter((w) => states.includes(w as State));
  return {
    above: nonfinite ? ["NaN, Inf"] : [],
    below: [...(zero.includes(true) ? ["zero"] : []), ...words],
    marks: (row, x, y, { first, last }) => {
      let path = "";
      // Where items are close together the signs shrink, so that each stays its own.
      const r = Math.min(3.5, Math.max(0.5, (x(1) - x(0)) * 0.4));
      for (let i = first; i <= last; i++) {
        if (row === "zero" && zero[i])
          path += `M${at(x(i) - r)} ${y}a${at(r)} ${at(r)} 0 1 0 ${at(2 * r)} 0a${at(r)} ${at(r)} 0 1 0 ${at(-2 * r)} 0`;
        else if (row !== "zero" && states[i] === row) path += `M${at(x(i) - r)} ${y}h${at(2 * r)}`;
      }
      return path;
    },
  };
}
