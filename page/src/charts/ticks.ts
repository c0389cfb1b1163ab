import { ticks } from "d3-array";

/** Where an axis has its ticks, and what stands beside them. */

/** Round numbers (1, 2 or 5 times a power of ten) from `low` to `high`, about `count` of them. */
export function linearTicks(low: number, high: number, count: number): number[] {
  return Number.isFinite(high - low) ? ticks(low, high, count) : [];
}

/** Round numbers of the largest unit of bytes (1024 times the one before) that is in sight. */
export function byteTicks(low: number, high: number, count: number): number[] {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, high)) / 10));
  return linearTicks(low / unit, high / unit, count).map((t) => t * unit);
}

/** Powers of ten from `low` to `high`, thinned evenly to about `count`; 2 and 5 between them where they are few. */
export function logTicks(low: number, high: number, count: number): number[] {
  if (!(low > 0) || !(high >= low) || !Number.isFinite(high)) return [];
  const powers = linearTicks(Math.log10(low) - 1e-9, Math.log10(high) + 1e-9, count).filter(Number.isInteger);
  if (powers.length >= 3) return powers.map((k) => Number(`1e${k}`));
  const first = Math.floor(Math.log10(low));
  const some = [first, first + 1, first + 2].flatMap((k) => [1, 2, 5].map((m) => Number(`${m}e${k}`)));
  const seen = some.filter((t) => t >= low * (1 - 1e-9) && t <= high * (1 + 1e-9));
  return seen.length > 1 ? seen : linearTicks(low, high, count);
}

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** A number beside a tick: short, `10⁻⁷` for far powers of ten. */
export function tickText(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(6)));
  const [mantissa = "", exponent = ""] = value.toExponential(2).split("e");
  const raised = [...String(Number(exponent))].map((c) => (c === "-" ? "⁻" : RAISED[Number(c)])).join("");
  const m = Number(mantissa);
  return Math.abs(m) === 1 ? `${m < 0 ? "-" : ""}10${raised}` : `${m}·10${raised}`;
}
