/** Where an axis has its ticks, and what stands beside them. */

/** Round numbers (1, 2 or 5 times a power of ten) from `low` to `high`, about `count` of them. */
export function linearTicks(low: number, high: number, count: number): number[] {
  if (!(high > low) || !(count > 0) || !Number.isFinite(high - low)) return Number.isFinite(low) ? [low] : [];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((k) => k * power >= rough * 0.999999) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const ticks: number[] = [];
  // A multiple of the step, not a running sum: 0.3 is 0.3 and not 0.30000000000000004.
  const digits = Math.max(0, Math.min(20, -Math.floor(Math.log10(step))));
  for (let k = first; k <= last; k++) ticks.push(Number((k * step).toFixed(digits)));
  return ticks;
}

/** Whole numbers from `low` to `high`, about `count`: for steps and ranks. */
export function wholeTicks(low: number, high: number, count: number): number[] {
  return linearTicks(low, high, Math.max(1, Math.min(count, high - low))).filter(Number.isInteger);
}

/** Round numbers of the largest unit of bytes (1024 times the one before) that is in sight. */
export function byteTicks(low: number, high: number, count: number): number[] {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, high)) / 10));
  const ticks = linearTicks(low / unit, high / unit, count).map((t) => t * unit);
  return ticks;
}

/** Powers of ten from `low` to `high`, thinned evenly to `count` at most; 2 and 5 between them where there is room. */
export function logTicks(low: number, high: number, count: number): number[] {
  if (!(low > 0) || !(high >= low) || !Number.isFinite(high)) return [];
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const decades = last - first + 1;
  if (decades >= 3 || decades * 3 > Math.max(count, 3)) {
    const every = Math.max(1, Math.ceil(decades / Math.max(1, count)));
    // On multiples of `every`, so that ticks stay where they are while a person moves along.
    const from = Math.ceil(first / every) * every;
    const ticks: number[] = [];
    for (let k = from; k <= last; k += every) ticks.push(power(k));
    return ticks;
  }
  const ticks: number[] = [];
  for (let k = first - 1; k <= last; k++) {
    for (const m of [1, 2, 5]) {
      const value = Number(`${m}e${k}`);
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) ticks.push(value);
    }
  }
  return ticks.length > 1 ? ticks : linearTicks(low, high, Math.max(count, 4)).filter((t) => t > 0);
}

function power(k: number): number {
  return Number(`1e${k}`);
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
