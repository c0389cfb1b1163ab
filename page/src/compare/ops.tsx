import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Choice, Panel } from "../charts/panel";
import { useRows } from "../charts/virtual";
import { Name } from "../parts/name";
import { usePrinting } from "../parts/printing";
import { whole } from "../route";
import { Course } from "./course";
import { OpDetail } from "./detail";
import type { Pair } from "./pair";
import { apart, CLASSES, State } from "./state";
import type { Props } from "./view";

const HEIGHT = 28;
const ROOM = 18;
const CHOICES = [
  ["all", "All"],
  ["bits", "Other bits"],
  ["differs", "Differ"],
  ["alone", "On one side"],
] as const;

/** Every operation of both, partners in one row. */
export function Ops({ pair, at, set, link }: Props) {
  const kind = CHOICES.some(([name]) => name === at.kind) ? at.kind! : "all";
  const [words, find] = useState(at.find ?? "");
  const found = useMemo(() => pair.find(kind, words), [pair, kind, words]);
  const row = whole(at.row, pair.rows, -1);
  const first = pair.doc.ops.suspect;
  const pick = (to: number) => set({ row: String(to) });
  const counts = useMemo(() => pair.counts(), [pair]);
  const { count } = pair.doc.ops;
  return (
    <Panel
      title="Operations of both, in the order in which they ran"
      note={[1, 5, 2, 0, 3, 4]
        .filter((state) => counts[state]! > 0)
        .map((state) => `${pair.word(state)}: ${counts[state]!.toLocaleString("en-US")}`)
        .join("; ")}
      tools={
        first >= 0 && (
          <button type="button" class="chart-button" onClick={() => pick(first)}>
            To the first that differs
          </button>
        )
      }
    >
      <Course pair={pair} row={row} onPick={pick} />
      <div class="chart-bar compare-ops-bar">
        <input
          type="search"
          class="compare-find"
          placeholder="Find an operation, module or line"
          aria-label="Find among operations"
          value={words}
          onInput={(e) => {
            find(e.currentTarget.value);
            set({ find: e.currentTarget.value });
          }}
        />
        <Choice
          label="Which operations"
          options={CHOICES}
          value={kind}
          onChange={(one) => set({ kind: one === "all" ? "" : one })}
        />
        <span class="quiet" role="status">
          {found.length.toLocaleString("en-US")} of {pair.rows.toLocaleString("en-US")}
        </span>
      </div>
      {count > pair.rows && (
        <p class="compare-note">
          Of {count.toLocaleString("en-US")} operations this page has {pair.rows.toLocaleString("en-US")}: those that
          differ, then the first.
        </p>
      )}
      <div class={`compare-ops${row >= 0 ? " compare-ops-open" : ""}`}>
        <List pair={pair} found={found} row={row} first={first} pick={pick} />
        {row >= 0 && <OpDetail pair={pair} row={row} link={link} close={() => set({ row: "" })} />}
      </div>
    </Panel>
  );
}

interface ListProps {
  pair: Pair;
  found: readonly number[];
  row: number;
  first: number;
  pick: (row: number) => void;
}

function List({ pair, found, row, first, pick }: ListProps) {
  const printing = usePrinting();
  const box = useRef<HTMLDivElement>(null);
  const seen = useRows(box, found.length, HEIGHT);
  // A row that was picked elsewhere is scrolled to; one that is in sight stays where it is.
  useEffect(() => {
    const place = found.indexOf(row);
    const element = box.current;
    if (place < 0 || element === null) return;
    const [top, room] = [place * HEIGHT, element.clientHeight - HEIGHT];
    if (top < element.scrollTop || top > element.scrollTop + room - HEIGHT)
      element.scrollTo({ top: Math.max(0, top - room / 2) });
  }, [row, found]);
  const [from, to] = printing ? [0, Math.min(found.length, 2000)] : seen;
  const beside = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const place = found.indexOf(row);
    const next = found[Math.min(found.length - 1, Math.max(0, place + by))];
    if (next !== undefined) pick(next);
  };
  return (
    <div
      class="chart-scroll compare-list"
      ref={box}
      tabIndex={0}
      role="region"
      aria-label="Table of operations"
      onKeyDown={beside}
      style={{ maxHeight: printing ? "none" : `${HEIGHT * (ROOM + 1)}px` }}
    >
      <table aria-rowcount={found.length + 1}>
        <thead>
          <tr>
            <th scope="col">operation</th>
            <th scope="col">module</th>
            <th scope="col">in the</th>
            <th scope="col">line of A</th>
            <th scope="col">line of B</th>
            <th scope="col" class="number">
              apart
            </th>
            <th scope="col">state</th>
          </tr>
        </thead>
        <tbody>
          {/* biome-ignore lint/a11y/noAriaHiddenOnFocusable: an empty row takes no focus */}
          {from > 0 && <tr aria-hidden="true" style={{ height: `${from * HEIGHT}px` }} />}
          {found.slice(from, to).map((one, i) => (
            <tr
              key={one}
              aria-rowindex={from + i + 2}
              class={`compare-row-${CLASSES[pair.doc.ops.state[one]!]}${one === row ? " picked" : ""}`}
              onClick={() => pick(one)}
            >
              <td>
                <button
                  type="button"
                  class="chart-pick mono"
                  aria-pressed={one === row}
                  onClick={(e) => {
                    e.stopPropagation();
                    pick(one);
                  }}
                >
                  {one === first && (
                    <span class="compare-first" title="The first that differs">
                      ▶{" "}
                    </span>
                  )}
                  {pair.title(one)}
                </button>
              </td>
              <td class="mono">
                <Name text={pair.module(one) || "–"} />
              </td>
              <td>
                {pair.phase(one)} {pair.step(one)}
              </td>
              <td class="mono">{pair.place(one, "a") || "–"}</td>
              <td class={`mono${pair.place(one, "a") === pair.place(one, "b") ? " quiet" : ""}`}>
                {pair.place(one, "b") || "–"}
              </td>
              <td class="number">{apart(pair.doc.ops.distance[one]!)}</td>
              <td>
                <State pair={pair} state={pair.doc.ops.state[one]!} />
              </td>
            </tr>
          ))}
          {!printing && to < found.length && (
            // biome-ignore lint/a11y/noAriaHiddenOnFocusable: an empty row takes no focus
            <tr aria-hidden="true" style={{ height: `${(found.length - to) * HEIGHT}px` }} />
          )}
        </tbody>
      </table>
      {found.length === 0 && <p class="quiet compare-nothing">No operation matches.</p>}
    </div>
  );
}
