import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Name } from "../parts/name";
import { usePrinting } from "../parts/printing";
import { saveCsv } from "../parts/save";
import { Button } from "./panel";
import { type Column, cells, type Order, sorted, turned } from "./rows";
import { useRows } from "./virtual";

const HEIGHT = 30;
/** Rows that are printed; a file has all. */
const PRINTED = 2000;

interface Props<R> {
  rows: readonly R[];
  columns: readonly Column<R>[];
  /** What the rows are: "parameters". It names the file too. */
  what: string;
  /** A click or Enter on a row. */
  onPick?: (row: R) => void;
  picked?: (row: R) => boolean;
  start?: Order;
  /** Rows seen at once. */
  room?: number;
}

/** A table that sorts by its heads and saves as CSV. Only the rows in sight are in the page. */
export function Table<R>({ rows, columns, what, onPick, picked, start, room = 14 }: Props<R>) {
  const [order, reorder] = useState<Order | null>(start ?? null);
  const [words, find] = useState("");
  const printing = usePrinting();
  const box = useRef<HTMLDivElement>(null);
  const found = useMemo(() => {
    const low = words.trim().toLowerCase();
    const first = columns[0]!;
    return low ? rows.filter((r) => String(first.value(r)).toLowerCase().includes(low)) : rows;
  }, [rows, columns, words]);
  const indexes = useMemo(() => sorted(found, columns, order), [found, columns, order]);
  const seen = useRows(box, indexes.length, HEIGHT);
  useEffect(() => box.current?.scrollTo({ top: 0 }), [order, words]);
  const [first, last] = printing ? [0, Math.min(indexes.length, PRINTED)] : seen;
  return (
    <div class="chart-table">
      <div class="chart-tools">
        {rows.length > room && (
          <input
            type="search"
            placeholder={`Find among ${rows.length.toLocaleString("en-US")} ${what}`}
            aria-label={`Find among ${what}`}
            value={words}
            onInput={(e) => find(e.currentTarget.value)}
          />
        )}
        <Button
          onClick={() =>
            saveCsv(
              `${what.replaceAll(" ", "-")}.csv`,
              columns.map((c) => c.name),
              cells(found, columns, indexes),
            )
          }
          label={`Save ${what} as CSV`}
        >
          CSV
        </Button>
      </div>
      <div
        class="chart-scroll"
        ref={box}
        tabIndex={0}
        role="region"
        aria-label={`Table of ${what}`}
        style={{ maxHeight: printing ? "none" : `${HEIGHT * (room + 1) + 2}px` }}
      >
        <table aria-rowcount={indexes.length + 1}>
          <thead>
            <tr>
              {columns.map((c) => (
                <th
                  key={c.name}
                  scope="col"
                  class={c.numeric ? "number" : ""}
                  aria-sort={order?.column === c.name ? (order.down ? "descending" : "ascending") : "none"}
                  title={c.about ?? ""}
                >
                  <button type="button" onClick={() => reorder(turned(c, order))}>
                    {c.name}
                    <span aria-hidden="true">{order?.column === c.name ? (order.down ? " ↓" : " ↑") : ""}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {/* biome-ignore lint/a11y/noAriaHiddenOnFocusable: an empty row takes no focus */}
            {first > 0 && <tr aria-hidden="true" style={{ height: `${first * HEIGHT}px` }} />}
            {indexes.slice(first, last).map((i, k) => (
              <Row
                key={i}
                row={found[i]!}
                columns={columns}
                at={first + k + 2}
                picked={picked?.(found[i]!) ?? false}
                onPick={onPick}
              />
            ))}
            {!printing && last < indexes.length && (
              // biome-ignore lint/a11y/noAriaHiddenOnFocusable: an empty row takes no focus
              <tr aria-hidden="true" style={{ height: `${(indexes.length - last) * HEIGHT}px` }} />
            )}
          </tbody>
        </table>
      </div>
      {printing && last < indexes.length && (
        <p>
          The first {PRINTED.toLocaleString("en-US")} of {indexes.length.toLocaleString("en-US")} rows; the page saves
          all as CSV.
        </p>
      )}
      {indexes.length === 0 && <p class="quiet">Nothing matches “{words}”.</p>}
    </div>
  );
}

function Row<R>({
  row,
  columns,
  at,
  picked,
  onPick,
}: {
  row: R;
  columns: readonly Column<R>[];
  at: number;
  picked: boolean;
  onPick: ((row: R) => void) | undefined;
}) {
  return (
    <tr aria-rowindex={at} class={picked ? "picked" : ""} {...(onPick ? { onClick: () => onPick(row) } : {})}>
      {columns.map((c, k) => {
        const value = c.value(row);
        const text = c.text ? c.text(row) : typeof value === "number" ? value.toLocaleString("en-US") : value;
        const inside =
          k === 0 && onPick ? (
            <button
              type="button"
              class="chart-pick"
              aria-pressed={picked}
              onClick={(e) => {
                e.stopPropagation();
                onPick(row);
              }}
              title={text}
            >
              <Name text={text} />
            </button>
          ) : k === 0 ? (
            <Name text={String(text)} />
          ) : (
            text
          );
        return (
          <td key={c.name} class={c.numeric ? "number" : k === 0 ? "mono" : ""} title={c.numeric ? undefined : text}>
            {inside}
          </td>
        );
      })}
    </tr>
  );
}
