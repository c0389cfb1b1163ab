/** Numbers as people read them. */

/** Three significant digits; `1.2e-7` where that is shorter. Norms below 0 were not measured. */
export function number(value: number | string | null | undefined): string {
  if (value === null || value === undefined) return "";
  const x = Number(value);
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "Inf" : "-Inf";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-3) return x.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return Number.isInteger(x) ? String(x) : String(Number(x.toPrecision(3)));
}

/** A norm: `number`, or a dash where it was not measured (-1). */
export function norm(value: number | undefined): string {
  return value === undefined || value < 0 ? "–" : number(value);
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(n: number): string {
  let k = 0;
  while (n >= 1024 && k < SIZES.length - 1) {
    n /= 1024;
    k++;
  }
  return `${k === 0 || n >= 100 ? Math.round(n) : n.toPrecision(3)} ${SIZES[k]}`;
}

export function seconds(s: number): string {
  if (s < 0) return "–";
  if (s < 1e-3) return `${(s * 1e6).toPrecision(3)} µs`;
  if (s < 1) return `${(s * 1e3).toPrecision(3)} ms`;
  if (s < 120) return `${s.toPrecision(3)} s`;
  return s < 7200 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
}

/** "1 step", "1,200 steps". */
export function count(n: number, what: string): string {
  return `${n.toLocaleString("en-US")} ${what}${n === 1 ? "" : "s"}`;
}
