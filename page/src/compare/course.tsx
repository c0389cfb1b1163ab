import { useCallback, useMemo, useState } from "preact/hooks";
import { Canvas } from "../charts/canvas";
import { type Palette, usePalette } from "../charts/colour";
import { useWidth } from "../charts/size";
import { tickText } from "../charts/ticks";
import { Pairs, Tooltip } from "../charts/tooltip";
import { decades, NOTHING, type Pair } from "./pair";
import { apart } from "./state";

const [LEFT, RIGHT, TOP, BOTTOM, HEIGHT] = [58, 10, 28, 26, 206];
/** Where operations of one side stand, above the axis. */
const ALONE = 14;

/** How far both runs are apart at each op, in the order in which they ran: a dot each, those that differ last. */
export function Course({ pair, row, onPick }: { pair: Pair; row: number; onPick: (row: number) => void }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const colours = usePalette();
  const [over, hover] = useState<number | null>(null);
  const { distance, state } = pair.doc.ops;
  const axis = useMemo(() => decades(distance), [pair]);
  const [low, high] = axis ?? [-3, 0];
  const x = (at: number) => LEFT + ((at + 0.5) / Math.max(1, pair.rows)) * (width - LEFT - RIGHT);
  const floor = HEIGHT - BOTTOM;
  // Exactly nothing has a line of its own below the axis, and what has no distance one above it.
  const y = (at: number) =>
    distance[at]! > 0
      ? TOP + (1 - (Math.log10(distance[at]!) - low) / (high - low)) * (floor - 14 - TOP)
      : distance[at] === 0
        ? floor - 4
        : ALONE;
  const draw = useCallback(
    (g: CanvasRenderingContext2D) => {
      g.font = `11px ${colours.font}`;
      g.textBaseline = "middle";
      bands(g, pair, x, floor, colours);
      const every = Math.ceil((high - low) / 5);
      for (let tick = low; tick <= high; tick += every) {
        const place = TOP + (1 - (tick - low) / (high - low)) * (floor - 14 - TOP);
        g.strokeStyle = colours.line;
        g.lineWidth = 0.6;
        g.beginPath();
        g.moveTo(LEFT, place);
        g.lineTo(width - RIGHT, place);
        g.stroke();
        g.fillStyle = colours.quiet;
        g.textAlign = "right";
        g.fillText(tickText(Number(`1e${tick}`)), LEFT - 6, place);
      }
      g.textAlign = "right";
      g.fillStyle = colours.quiet;
      g.fillText("0", LEFT - 6, floor - 4);
      if (distance.some((one, i) => one < 0 && state[i] !== NOTHING)) g.fillText("one side", LEFT - 6, ALONE);
      const size = pair.rows > 4000 ? 2 : 3;
      for (const kind of [0, 5, 1, 2, 3, 4]) {
        g.fillStyle = [colours.good, colours.forward, colours.bad, colours.warn, colours.warn, colours.quiet][kind]!;
        for (let at = 0; at < pair.rows; at++) {
          if (state[at] !== kind) continue;
          g.fillRect(x(at) - size / 2, y(at) - size / 2, size, size);
        }
      }
      const { suspect } = pair.doc.ops;
      if (suspect >= 0) mark(g, x(suspect), floor, colours.bad);
      if (row >= 0 && row !== suspect) mark(g, x(row), floor, colours.accent);
    },
    [pair, width, colours, row],
  );
  const at = (event: MouseEvent): number | null => {
    const left = event.clientX - (event.currentTarget as HTMLElement).getBoundingClientRect().left;
    const top = event.clientY - (event.currentTarget as HTMLElement).getBoundingClientRect().top;
    const middle = Math.floor(((left - LEFT) / Math.max(1, width - LEFT - RIGHT)) * pair.rows);
    const reach = Math.max(1, Math.ceil((6 / Math.max(1, width)) * pair.rows));
    let best: number | null = null;
    let near = Infinity;
    for (let one = Math.max(0, middle - reach); one <= Math.min(pair.rows - 1, middle + reach); one++) {
      if (state[one] === NOTHING) continue;
      const far = Math.hypot(x(one) - left, y(one) - top);
      if (far < near) [best, near] = [one, far];
    }
    return best;
  };
  return (
    <div class="chart-box compare-course" ref={box}>
      {width > 0 && (
        <Canvas
          width={width}
          height={HEIGHT}
          label={`How far both runs are apart at each of ${pair.rows} operations`}
          draw={draw}
          onMouseMove={(e) => hover(at(e))}
          onMouseLeave={() => hover(null)}
          onClick={(e) => {
            const found = at(e);
            if (found !== null) onPick(found);
          }}
        />
      )}
      {over !== null && (
        <Tooltip x={x(over)} y={Math.max(0, y(over) - 10)}>
          <strong>{pair.title(over)}</strong>
          <Pairs
            rows={[
              ["module", pair.module(over) || "(model)"],
              ["in the", `${pair.phase(over)} of step ${pair.step(over)}`],
              ["state", pair.word(state[over]!)],
              ["apart", apart(distance[over]!)],
            ]}
          />
        </Tooltip>
      )}
    </div>
  );
}

function mark(g: CanvasRenderingContext2D, x: number, floor: number, colour: string): void {
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(x, 4);
  g.lineTo(x, floor);
  g.stroke();
  g.fillStyle = colour;
  g.beginPath();
  g.moveTo(x - 4, 0);
  g.lineTo(x + 4, 0);
  g.lineTo(x, 7);
  g.fill();
}

/** Steps and phases under the dots. */
function bands(
  g: CanvasRenderingContext2D,
  pair: Pair,
  x: (at: number) => number,
  floor: number,
  colours: Palette,
): void {
  let from = 0;
  const key = (at: number) => `${pair.step(at)} ${pair.phase(at)}`;
  for (let at = 1; at <= pair.rows; at++) {
    if (at < pair.rows && key(at) === key(from)) continue;
    const [begin, end] = [x(from - 0.5), x(at - 0.5)];
    const phase = pair.phase(from);
    g.fillStyle =
      { forward: colours.forward, backward: colours.backward, optimizer: colours.update }[phase] ?? colours.quiet;
    g.fillRect(begin, floor + 2, Math.max(1, end - begin - 1), 3);
    const text = `${phase} ${pair.step(from)}`;
    if (g.measureText(text).width + 6 < end - begin) {
      g.fillStyle = colours.quiet;
      g.textAlign = "center";
      g.fillText(text, (begin + end) / 2, floor + 14);
    }
    from = at;
  }
}
