/** Evidence is whatever a finding had to show, as JSON: here it becomes something that a person can read. */

export type Shown =
  | { kind: "text"; text: string }
  | { kind: "list"; items: string[] }
  | { kind: "table"; columns: string[]; rows: string[][] }
  | { kind: "pairs"; pairs: [string, Shown][] };

/** Deeper than this it is shown as JSON. */
const DEEP = 4;

/** "first_elements" as "first elements". */
export function label(key: string): string {
  return key.replaceAll("_", " ").trim() || key;
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

export function shown(value: unknown, depth = 0): Shown {
  if (depth > DEEP) return { kind: "text", text: JSON.stringify(value) };
  if (Array.isArray(value)) return list(value);
  if (typeof value === "object" && value !== null) {
    return { kind: "pairs", pairs: Object.entries(value).map(([key, one]) => [label(key), shown(one, depth + 1)]) };
  }
  return { kind: "text", text: scalar(value) };
}

function list(values: unknown[]): Shown {
  if (values.length === 0) return { kind: "text", text: "none" };
  if (!values.every(isRecord)) return { kind: "list", items: values.map(scalar) };
  const columns = [...new Set(values.flatMap((one) => Object.keys(one)))];
  const rows = values.map((one) => columns.map((key) => (key in one ? scalar(one[key]) : "")));
  return { kind: "table", columns: columns.map(label), rows };
}

function isScalar(value: unknown): boolean {
  return typeof value !== "object" || value === null;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
