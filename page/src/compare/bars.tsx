import { useMemo, useRef, useState } from "preact/hooks";
import { tickText } from "../charts/ticks";
import { useRows } from "../charts/virtual";
import { Name } from "../parts/name";
import { usePrinting } from "../parts/printing";
import { AGREES, BITS, type Cell, DIFFERS, decades, type Line, type Pair, SAME } from "./pair";
import { apart, CLASSES } from "./state";

const HEIGHT = 26;

interface Props {
  pair: Pair;
  lines: readonly Line[];
  heads: readonly [string, string];
  /** What the lines are: "modules". */
  what: string;
  onPick: (row: number) => void;
}

/** Names with a bar in each of two columns, as long as both runs are apart: on a logarithmic axis. */
export function Bars({ pair, lines, heads, what, onPick }: Props) {
  const [words, find] = useState("");
  const printing = usePrinting();
  const box = useRef<HTMLDivElement>(null);
  const axis = useMemo(() => decades(lines.flatMap((l) => l.cells.map((c) => c?.distance ?? -1))), [lines]);
  const found = useMemo(() => {
    const low = words.trim().toLowerCase();
    return low ? lines.filter((line) => line.name.toLowerCase().includes(low)) : lines;
  }, [lines, words]);
  const seen = useRows(box, found.length, HEIGHT);
  const [first, last] = printing ? [0, found.length] : seen;
  if (lines.length === 0) return <p class="chart-empty">Nothing to compare here.</p>;
  return (
    <div class="compare-bars">
      {lines.length > 20 && (
        <div class="chart-tools">
          <input
            type="search"
            placeholder={`Find among ${lines.length.toLocaleString("en-US")} ${what}`}
            aria-label={`Find among ${what}`}
            value={words}
            onInput={(e) => find(e.currentTarget.value)}
          />
        </div>
      )}
      <div class="compare-bars-head" aria-hidden="true">
        <span />
        {heads.map((head) => (
          <span key={head}>
            <strong>{head}</strong>
            <Axis axis={axis} />
          </span>
        ))}
      </div>
      <div
        class="compare-bars-scroll"
        ref={box}
        tabIndex={0}
        role="region"
        aria-label={`How far apart: ${what}`}
        style={{ maxHeight: printing ? "none" : `${HEIGHT * 30.5}px` }}
      >
        <div style={{ height: `${first * HEIGHT}px` }} />
        {found.slice(first, last).map((line) => (
          <div class="compare-bars-row" key={line.name} style={{ height: `${HEIGHT}px` }}>
            <span class="mono">
              <Name text={line.name} />
            </span>
            {line.cells.map((cell, k) => (
              <Bar key={heads[k]} {...{ pair, cell, axis, onPick }} label={`${line.name}, ${heads[k]}`} />
            ))}
          </div>
        ))}
        {!printing && <div style={{ height: `${(found.length - last) * HEIGHT}px` }} />}
      </div>
      {found.length === 0 && <p class="quiet">Nothing matches “{words}”.</p>}
    </div>
  );
}

type Axis = [number, number] | null;

/** From 0 to 1; the least decade is not nothing. */
function place(axis: [number, number], distance: number): number {
  return Math.min(1, Math.max(0.01, (Math.log10(distance) - axis[0]) / (axis[1] - axis[0])));
}

function Axis({ axis }: { axis: Axis }) {
  if (axis === null) return null;
  const [low, high] = axis;
  const every = Math.ceil((high - low) / 4);
  const ticks = Array.from({ length: Math.floor((high - low) / every) + 1 }, (_, i) => low + i * every);
  return (
    <span class="compare-axis">
      {ticks.map((tick) => (
        <span key={tick} style={{ left: `${((tick - low) / (high - low)) * 100}%` }}>
          {tickText(Number(`1e${tick}`))}
        </span>
      ))}
    </span>
  );
}

function Bar({
  pair,
  cell,
  axis,
  label,
  onPick,
}: {
  pair: Pair;
  cell: Cell | null;
  axis: Axis;
  label: string;
  onPick: (row: number) => void;
}) {
  if (cell === null) return <span class="compare-bar quiet">–</span>;
  const word = pair.word(cell.state);
  const said = cell.state === 0 || cell.distance < 0 ? word : apart(cell.distance);
  return (
    <button
      type="button"
      class={`compare-bar compare-${CLASSES[cell.state]}`}
      title={`${label}: ${word}${cell.distance > 0 ? `, ${apart(cell.distance)} apart` : ""}`}
      aria-label={`${label}: ${word}, ${said}`}
      onClick={() => onPick(cell.row)}
    >
      <span class="compare-track">
        {axis !== null && cell.distance > 0 && (
          <span class="compare-fill" style={{ width: `${place(axis, cell.distance) * 100}%` }} />
        )}
      </span>
      <span class="compare-number">{said}</span>
    </button>
  );
}

/** What the colours mean. */
export function Key({ pair, lines }: { pair: Pair; lines: readonly Line[] }) {
  const there = new Set(lines.flatMap((line) => line.cells.map((cell) => cell?.state ?? SAME)));
  const states = [AGREES, DIFFERS, BITS].filter((state) => there.has(state));
  if (states.length === 0) return null;
  return (
    <ul class="chart-legend">
      {states.map((state) => (
        <li key={state}>
          <span class={`compare-swatch compare-${CLASSES[state]}`} aria-hidden="true" />
          {pair.word(state)}
        </li>
      ))}
    </ul>
  );
}
