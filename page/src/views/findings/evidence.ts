import { bytes, seconds } from "../../parts/words";

/** Evidence is whatever a finding had to show, as JSON: here it becomes something that a person can read. */

export type Shown =
  | { kind: "text"; text: string }
  | { kind: "list"; items: string[] }
  /** `sizes`: by column, how much of the greatest of its numbers each row has; null where it has no bars. */
  | { kind: "table"; columns: string[]; rows: string[][]; sizes?: (number[] | null)[] }
  | { kind: "pairs"; pairs: [string, Shown][] };

/** Deeper than this it is shown as JSON. */
const DEEP = 4;

const WORDS: Readonly<Record<string, string>> = {
  op: "operation",
  nan: "NaN",
  inf: "Inf",
  numel: "elements",
  grad: "gradient",
  param: "parameter",
  dtype: "type",
  ddp: "DDP",
};

/** "first_elements" as "first elements"; short words of code in full. */
export function label(key: string): string {
  return (
    key
      .split("_")
      .map((word) => WORDS[word] ?? word)
      .join(" ")
      .trim() || key
  );
}

/** A value under a key that says its unit. */
function valued(key: string, value: unknown): string {
  if (typeof value !== "number") return scalar(value);
  if (/(^|_)bytes$/.test(key)) return `${bytes(value)} (${numeral(value)})`;
  return /(^|_)seconds$/.test(key) ? seconds(value) : scalar(value);
}

/** A value without parts. */
export function scalar(value: unknown): string {
  if (value === null || value === undefined) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return numeral(value);
  if (typeof value === "string") return NOT_FINITE[value] ?? (value === "" ? "(empty)" : value);
  return Array.isArray(value) && value.every(isScalar) ? `(${value.map(scalar).join(", ")})` : JSON.stringify(value);
}

const NOT_FINITE: Readonly<Record<string, string>> = { Infinity: "Inf", "-Infinity": "-Inf" };

/** Whole numbers as they are, others with six digits: evidence is there to be checked. */
function numeral(x: number): string {
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return x.toLocaleString("en-US");
  return String(Number(x.toPrecision(6))).replace("e+", "e");
}

export function shown(value: unknown, depth = 0, key = ""): Shown {
  if (depth > DEEP) return { kind: "text", text: JSON.stringify(value) };
  if (Array.isArray(value)) return list(value);
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value);
    // Many numbers by name are a chart.
    if (depth > 0 && entries.length > 2 && entries.every(([, one]) => isNumber(one))) {
      const rows = entries.map(([name, one]) => [name, valued(key, one)]);
      return {
        kind: "table",
        columns: ["", label(key)],
        rows,
        sizes: [null, sizes(entries.map(([, one]) => Number(one)))],
      };
    }
    return { kind: "pairs", pairs: entries.map(([name, one]) => [label(name), shown(one, depth + 1, name)]) };
  }
  return { kind: "text", text: valued(key, value) };
}

function list(values: unknown[]): Shown {
  if (values.length === 0) return { kind: "text", text: "none" };
  if (!values.every(isRecord)) return { kind: "list", items: values.map(scalar) };
  const columns = [...new Set(values.flatMap((one) => Object.keys(one)))];
  const rows = values.map((one) => columns.map((key) => (key in one ? valued(key, one[key]) : "")));
  const bars = columns.map((key) =>
    values.length > 2 && /bytes|seconds|norm|times|count/.test(key) && values.every((one) => isNumber(one[key]))
      ? sizes(values.map((one) => Number(one[key])))
      : null,
  );
  return { kind: "table", columns: columns.map(label), rows, ...(bars.some(Boolean) ? { sizes: bars } : {}) };
}

/** Numbers as parts of the greatest; over more than three decades by their logarithm, as a bar of nothing says nothing. */
export function sizes(values: readonly number[]): number[] {
  const good = values.filter((v) => v > 0 && Number.isFinite(v));
  const [low, high] = [Math.min(...good), Math.max(...good)];
  return values.map((v) => {
    if (!Number.isFinite(v)) return 1;
    if (!(v > 0)) return 0;
    return high / low > 1000 ? (1 + Math.log10(v / low)) / (1 + Math.log10(high / low)) : v / high;
  });
}

function isNumber(value: unknown): boolean {
  return typeof value === "number" || (typeof value === "string" && ["NaN", "Infinity", "-Infinity"].includes(value));
}

function isScalar(value: unknown): boolean {
  return typeof value !== "object" || value === null;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
