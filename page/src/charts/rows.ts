/** Sorting and saving of tables, apart from how they look. */

export interface Column<R> {
  name: string;
  /** What is sorted by and saved. */
  value: (row: R) => string | number;
  /** What a person reads; the value itself without it. */
  text?: (row: R) => string;
  /** Right-aligned, greatest first. */
  numeric?: boolean;
  /** Numbers below zero are values, as a mean's; without it they say that something was not measured. */
  signed?: boolean;
  /** What the column means. */
  about?: string;
}

export interface Order {
  column: string;
  down: boolean;
}

/** Indexes of `rows` in order; rows that are equal stay as they were. Norms below 0 were not measured: last, either way. */
export function sorted<R>(rows: readonly R[], columns: readonly Column<R>[], order: Order | null): number[] {
  const indexes = rows.map((_, i) => i);
  const column = order && columns.find((c) => c.name === order.column);
  if (!column) return indexes;
  const values = rows.map(column.value);
  const sign = order.down ? -1 : 1;
  return indexes.sort((a, b) => compare(values[a]!, values[b]!, sign, column.signed === true) || a - b);
}

function compare(a: string | number, b: string | number, sign: number, signed: boolean): number {
  if (typeof a === "string" || typeof b === "string") {
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  }
  const [missingA, missingB] = signed ? [false, false] : [a < 0, b < 0];
  if (missingA || missingB) return Number(missingA) - Number(missingB);
  // NaN and infinity are what a person looks for: greater than all numbers, NaN the greatest.
  const rank = (v: number): number => (Number.isNaN(v) ? 2 : v === Infinity ? 1 : v === -Infinity ? -1 : 0);
  return sign * (rank(a) - rank(b) || (rank(a) ? 0 : a - b));
}

/** The order after a click on a column: numbers start with the greatest. */
export function turned<R>(column: Column<R>, order: Order | null): Order {
  if (order?.column !== column.name) return { column: column.name, down: column.numeric === true };
  return { column: column.name, down: !order.down };
}

/** Rows as CSV cells; a norm that was not measured is an empty cell. */
export function* cells<R>(
  rows: readonly R[],
  columns: readonly Column<R>[],
  indexes: Iterable<number>,
): Generator<(string | number)[]> {
  for (const i of indexes) {
    yield columns.map((c) => {
      const value = c.value(rows[i]!);
      return typeof value === "number" && value < 0 && !c.signed ? "" : value;
    });
  }
}
