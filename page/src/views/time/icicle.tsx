import type { RefObject } from "preact";
import { useCallback, useMemo, useState } from "preact/hooks";
import { Canvas, fitted } from "../../charts/canvas";
import { fill, usePalette } from "../../charts/colour";
import { useFrame, useWidth } from "../../charts/size";
import { linearTicks } from "../../charts/ticks";
import { Pairs, Tooltip } from "../../charts/tooltip";
import { clamped, type Range, useZoom, zoomed } from "../../charts/zoom";
import type { Calls, Model } from "../../data/model";
import { aboutModule, aboutNode, labelOf, type Spot } from "./about";
import { boxes, stretchAt, type Timeline } from "./timeline";

interface Props {
  model: Model;
  call: Calls;
  timeline: Timeline;
  /** Seen part, in the unit of `timeline.begin`. */
  range: readonly [number, number];
  onRange: (range: Range) => void;
  /** What a place along the axis is called. */
  unit: (value: number) => string;
  label: string;
  module: number;
  node: number;
  onPick: (spot: Spot) => void;
  canvas: RefObject<HTMLCanvasElement | null>;
}

/** A millionth of the whole is as close as numbers on the axis stay different. */
export const closest = (total: number): number => total * 1e-6;

const ROW = 21;
const AXIS = 22;

/** Rows of modules by depth, and the nodes at the foot, along the time. Only what is a pixel wide is drawn. */
export function Icicle({ model, call, timeline, range, onRange, unit, label, module, node, onPick, canvas }: Props) {
  const [box, width] = useWidth<HTMLDivElement>();
  const colours = usePalette();
  const [at, hover] = useState<Spot | null>(null);
  const [low, high] = range;
  const total = timeline.begin[timeline.begin.length - 1]!;
  const height = AXIS + timeline.rows.length * ROW + 4;
  const nodes = model.nodes(call);
  const bottom = timeline.rows.length - 1;
  /** How many nodes with gradients that are not finite come before each: asked for every box. */
  const bad = useMemo(() => {
    const sum = new Int32Array(timeline.sequence.length + 1);
    timeline.sequence.forEach((i, k) => (sum[k + 1] = sum[k]! + (call.marks[i]! & 19 ? 1 : 0)));
    return sum;
  }, [timeline, call]);

  const draw = useCallback(
    (context: CanvasRenderingContext2D, w: number) => {
      const scale = w / (high - low);
      context.font = `11px ${colours.font}`;
      context.textBaseline = "middle";
      for (const tick of linearTicks(low, high, Math.max(2, w / 120))) {
        const x = Math.round((tick - low) * scale) + 0.5;
        context.fillStyle = colours.line;
        context.fillRect(x, 0, 1, height);
        context.fillStyle = colours.quiet;
        const text = unit(tick);
        if (x + context.measureText(text).width + 4 < w) context.fillText(text, x + 4, 9);
      }
      timeline.rows.forEach((row, r) => {
        const y = AXIS + r * ROW;
        for (const b of boxes(timeline, row, low, high, w)) {
          const one = b.from === b.to;
          const of = row.of[b.from]!;
          const name = one ? labelOf(model, nodes, r === bottom, of) : "";
          context.fillStyle = one
            ? fill(r === bottom ? nodes.strings[nodes.name[of]!]! : model.doc.modules[of]!.class || name, colours.dark)
            : colours.line;
          context.fillRect(b.x, y, Math.max(0.5, b.width - (b.width > 3 ? 1 : 0)), ROW - 2);
          const marked = r === bottom && bad[row.last[b.to]! + 1]! > bad[row.first[b.from]!]!;
          const sign = marked && b.width > 44;
          if (marked) {
            context.fillStyle = colours.bad;
            context.fillRect(b.x, y + ROW - 5, Math.max(1.5, b.width - 1), 3);
            if (sign) context.fillText("✕", b.x + b.width - 13, y + 8);
          }
          const chosen = one && (r === bottom ? of === node : of === module);
          if (chosen) {
            context.strokeStyle = colours.accent;
            context.lineWidth = 2;
            context.strokeRect(b.x + 1, y + 1, Math.max(1, b.width - 3), ROW - 4);
          }
          if (b.width > 20) {
            context.fillStyle = colours.ink;
            context.fillText(
              fitted(context, one ? name : `${b.to - b.from + 1} ×`, b.width - (sign ? 22 : 8)),
              b.x + 4,
              y + ROW / 2 - 0.5,
            );
          }
        }
      });
    },
    [timeline, low, high, colours, model, nodes, module, node, bad, height, unit],
  );

  const spotAt = (clientX: number, clientY: number): Spot | null => {
    const bounds = box.current!.getBoundingClientRect();
    const r = Math.floor((clientY - bounds.top - AXIS) / ROW);
    const row = timeline.rows[r];
    if (!row) return null;
    const k = stretchAt(timeline, row, low + ((clientX - bounds.left) / width) * (high - low));
    return k < 0 ? null : { row: r, stretch: k };
  };
  const point = useFrame((x: number, y: number) => hover(spotAt(x, y)));
  const slide = useFrame(onRange);
  const least = closest(total);
  useZoom(box, { range, total, least, left: 0, width, drag: true, onRange: slide });
  const pan = (by: number): void => onRange(clamped([low + by, high + by], total, least));
  const scale = (factor: number): void => onRange(zoomed(range, factor, (low + high) / 2, total, least));
  const show = (spot: Spot): void => {
    hover(spot);
    const row = timeline.rows[spot.row]!;
    const [a, b] = [timeline.begin[row.first[spot.stretch]!]!, timeline.begin[row.last[spot.stretch]! + 1]!];
    if (b <= low || a >= high) pan((a + b - low - high) / 2);
  };
  const keys = (e: KeyboardEvent): void => {
    const side = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    const down = { ArrowUp: -1, ArrowDown: 1 }[e.key];
    if (side && e.shiftKey) pan(side * 0.2 * (high - low));
    else if (side) {
      const spot = at ?? { row: bottom, stretch: side > 0 ? -1 : 0 };
      const next = spot.stretch + side;
      if (next >= 0 && next < timeline.rows[spot.row]!.first.length) show({ row: spot.row, stretch: next });
    } else if (down) {
      const now = at ?? { row: down > 0 ? -1 : bottom + 1, stretch: 0 };
      const place = at ? timeline.rows[at.row]!.first[at.stretch]! : 0;
      let next: Spot | null = null;
      for (let r = now.row + down; r >= 0 && r <= bottom && !next; r += down) {
        const k = timeline.rows[r]!.last.findIndex((last) => last >= place);
        if (k >= 0) next = { row: r, stretch: k };
      }
      if (next) show(next);
    } else if (e.key === "+" || e.key === "=") scale(0.6);
    else if (e.key === "-") scale(1.7);
    else if (e.key === "0") onRange([0, total]);
    else if ((e.key === "Enter" || e.key === " ") && at) onPick(at);
    else if (e.key === "Escape") hover(null);
    else return;
    e.preventDefault();
  };
  const row = at && timeline.rows[at.row];
  const place = row
    ? ((timeline.begin[row.first[at.stretch]!]! + timeline.begin[row.last[at.stretch]! + 1]!) / 2 - low) *
      (width / (high - low))
    : 0;
  return (
    <div class="chart-box time-icicle" ref={box}>
      <Canvas
        canvas={canvas}
        width={width}
        height={height}
        draw={draw}
        label={label}
        tabIndex={0}
        onKeyDown={keys}
        onPointerMove={(e) => point(e.clientX, e.clientY)}
        onClick={(e) => {
          const spot = spotAt(e.clientX, e.clientY);
          if (spot) onPick(spot);
        }}
        onPointerLeave={() => hover(null)}
        onBlur={() => hover(null)}
        onDblClick={(e) => {
          const spot = spotAt(e.clientX, e.clientY);
          const on = spot && timeline.rows[spot.row];
          if (on) onRange([timeline.begin[on.first[spot.stretch]!]!, timeline.begin[on.last[spot.stretch]! + 1]!]);
        }}
      />
      {at && row && (
        <>
          <div
            class="time-at"
            style={{ top: `${AXIS + at.row * ROW}px`, height: `${ROW - 2}px`, ...edges(timeline, at, range, width) }}
          />
          <Tooltip x={Math.min(Math.max(place, 0), width)} y={AXIS + (at.row + 1) * ROW + 4}>
            <strong class="chart-mono">
              {at.row === bottom
                ? (nodes.strings[nodes.name[row.of[at.stretch]!]!] ?? "")
                : model.name(row.of[at.stretch]!)}
            </strong>
            <Pairs
              rows={
                at.row === bottom
                  ? aboutNode(model, call, row.of[at.stretch]!)
                  : aboutModule(model, timeline, row, at.stretch)
              }
            />
          </Tooltip>
        </>
      )}
    </div>
  );
}

function edges(
  { begin, rows }: Timeline,
  at: Spot,
  [low, high]: readonly [number, number],
  width: number,
): { left: string; width: string } {
  const row = rows[at.row]!;
  const scale = width / (high - low);
  const left = Math.max(0, (begin[row.first[at.stretch]!]! - low) * scale);
  const right = Math.min(width, (begin[row.last[at.stretch]! + 1]! - low) * scale);
  return { left: `${left}px`, width: `${Math.max(2, right - left)}px` };
}
