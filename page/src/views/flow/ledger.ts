/** The ledger of a parameter: what happened to its gradient and its weight from one step of its optimizer to the next. */
import type { Decoded, Finding, Ledger, LedgerBuffer, LedgerChanges, LedgerRow } from "../../data/document";
import { count } from "../../parts/words";

/** The section of the view, as the address names it. */
export const LEDGER = "ledger";

/** The rows that one optimizer has of a parameter. */
export interface Book {
  optimizer: Ledger<Int32Array>["optimizers"][number];
  rows: LedgerRow[];
}

export interface Account {
  books: Book[];
  /** Rows that the page leaves out. */
  cut: number;
  /** The other parameters to which the same happened, in forward order. */
  alike: number[];
  changes: LedgerChanges[];
  /** Buffers of the parameter's module. */
  buffers: LedgerBuffer[];
}

/** The account of a parameter; null where no optimizer holds it or nothing was observed. */
export function accountOf({ ledger, parameters }: Decoded, parameter: number): Account | null {
  const number = ledger?.of[parameter] ?? -1;
  const account = ledger?.accounts[number];
  if (!ledger || !account) return null;
  const books = new Map<number, Map<string, LedgerRow>>();
  for (const at of account.rows) {
    const row = ledger.rows[at]!;
    const book = books.get(row.optimizer) ?? new Map<string, LedgerRow>();
    // The reasons may have counts, which cannot be added up here.
    const key = row.why ? `${at}` : `${row.events} ${row.frozen}`;
    const known = book.get(key);
    book.set(key, known ? together(known, row) : row);
    books.set(row.optimizer, book);
  }
  const alike: number[] = [];
  ledger.of.forEach((other, i) => {
    if (other === number && i !== parameter) alike.push(i);
  });
  return {
    books: [...books].map(([of, rows]) => ({ optimizer: ledger.optimizers[of]!, rows: [...rows.values()] })),
    cut: account.cut,
    alike,
    changes: ledger.changes.filter((one) => one.parameter === parameter),
    buffers: ledger.buffers.filter((one) => one.module === moduleOf(parameters[parameter]!.name)),
  };
}

/** The path of the module that holds a parameter. */
function moduleOf(name: string): string {
  return name.slice(0, Math.max(0, name.lastIndexOf(".")));
}

/** Records tell rows apart by more than a person sees: those that read the same are one. */
function together(one: LedgerRow, other: LedgerRow): LedgerRow {
  return {
    ...one,
    periods: one.periods + other.periods,
    first: Math.min(one.first, other.first),
    last: Math.max(one.last, other.last),
    moved: one.moved + other.moved,
    kept: one.kept + other.kept,
  };
}

/**
 * The first parameter of a finding that has an account; where the finding names none, the first of the optimizer whose
 * line it names. -1: there is none.
 */
export function ledgered({ parameters, ledger }: Decoded, finding: Finding): number {
  if (!ledger) return -1;
  const places = new Map(parameters.map((one, i) => [one.name, i]));
  for (const name of finding.parameters) {
    const place = places.get(name) ?? -1;
    if ((ledger.of[place] ?? -1) >= 0) return place;
  }
  const made = finding.sites.find(({ role }) => role === "optimizer")?.site ?? -1;
  if (finding.parameters.length > 0 || made < 0) return -1;
  return ledger.of.findIndex((number) =>
    (ledger.accounts[number]?.rows ?? []).some((at) => ledger.optimizers[ledger.rows[at]!.optimizer]!.made === made),
  );
}

/** What of the address shows the ledger of a parameter. */
export function toLedger(parameter: number): Record<string, string> {
  return { parameter: String(parameter), section: LEDGER };
}

/** How often the events of a row happened: in every step from its first to its last one, or in some of them. */
export function often({ periods, first, last }: LedgerRow): string {
  if (first === last && periods === 1) return "";
  return periods === last - first + 1 ? `the same in all ${periods.toLocaleString("en-US")}` : count(periods, "time");
}

/** Whether the step moved the weight, in words; "" where its values were not compared. `good`: it moved it each time. */
export function movement({ periods, moved, kept, why }: LedgerRow): { text: string; good: boolean } {
  const compared = moved + kept;
  if (compared === 0) return { text: "", good: true };
  if (moved === 0) return { text: `the weight stayed as it was${why && `, ${why}`}`, good: false };
  if (kept > 0) return { text: `the weight moved in ${moved} of ${compared}${why && `; ${why}`}`, good: false };
  const some = compared < periods ? ` in all ${compared} that were compared` : "";
  return { text: `the weight moved${some}`, good: true };
}
