import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { ARROWS, Canvas, fitted } from "../../charts/canvas";
import { css, sequential, usePalette } from "../../charts/colour";
import { LEFT, RIGHT } from "../../charts/line";
import { padded } from "../../charts/scale";
import { useFrame, useWidth } from "../../charts/size";
import { Pairs, Tooltip } from "../../charts/tooltip";
import { count, number } from "../../parts/words";
import { brackets } from "../flow/items";
import { paint } from "../ranks/picture";
import { type AllLevels, apart, columnAt, edges, type Kind, raster, scaleOf } from "./picture";

interface Props {
  levels: AllLevels;
  kind: Kind;
  range: readonly [number, number];
  /** The selected one. */
  step: number;
  picked: readonly number[];
  onPick: (layer: number, step: number) => void;
}

/** All layers against the steps. */
export function LevelMap({ levels, kind, range, step, picked, onPick }: Props) {
  const [box, width] = useWidth<HTMLDivElement>();
  const colours = usePalette();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, hover] = useState<{ row: number; column: number } | null>(null);
  const { steps } = levels;
  const size = kind.names.length;
  const inner = Math.max(1, width - LEFT - RIGHT);
  const height = Math.round(Math.min(460, Math.max(28, size * 14)));
  const each = height / size;
  const ratio = typeof devicePixelRatio === "number" ? devicePixelRatio : 1;
  const scale = useMemo(() => scaleOf(kind), [kind]);
  const sides = useMemo(() => edges(steps), [steps]);
  const alarms = useMemo(
    () =>
      levels.alarms.flatMap((one) => {
        const row = one.quantity === kind.quantity ? kind.names.indexOf(one.name) : -1;
        return row < 0 ? [] : [{ row, step: one.step }];
      }),
    [levels, kind],
  );
  const groups = useMemo(
    () =>
      brackets(
        kind.names.map((name, index) => ({ kind: "parameter", index, name, short: name, module: 1 })),
        3,
      ),
    [kind],
  );
  const [low, high] = padded(range[0], range[1], inner);
  const place = useCallback((of: number) => ((of - low) / (high - low)) * inner, [inner, low, high]);

  const draw = useCallback(
    (context: CanvasRenderingContext2D) => {
      context.fillStyle = colours.sunken;
      context.fillRect(LEFT, 0, inner, height);
      const made = raster(
        kind,
        sides,
        Math.round(height * ratio),
        Math.round(inner * ratio),
        (of) => place(of) * ratio,
      );
      const image = document.createElement("canvas");
      [image.width, image.height] = [made.columns, made.rows];
      const bad = (colours.bad.match(/[\d.]+/g) ?? []).map(Number) as unknown as readonly [number, number, number];
      image
        .getContext("2d")!
        .putImageData(new ImageData(paint(made, scale, false, bad), made.columns, made.rows), 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(image, LEFT, 0, inner, height);
      context.font = `10.5px ${colours.font}`;
      context.textBaseline = "middle";
      context.textAlign = "right";
      context.fillStyle = colours.quiet;
      if (each >= 12) {
        apart(kind.names).forEach((name, row) =>
          context.fillText(fitted(context, name || "(model)", LEFT - 8), LEFT - 6, (row + 0.5) * each),
        );
      } else {
        const row = groups.reduce((best, one) => (one.length > best.length ? one : best), groups[0] ?? []);
        let free = 0;
        for (const b of row) {
          const [top, bottom] = [b.first * each, (b.last + 1) * each];
          context.fillStyle = colours.line;
          context.fillRect(LEFT - 4, top + 0.5, 1.5, bottom - top - 1);
          context.fillStyle = colours.quiet;
          const middle = (top + bottom) / 2;
          if (bottom - top < 8.5 || middle < free) continue;
          context.fillText(fitted(context, b.label, LEFT - 8), LEFT - 7, middle);
          free = middle + 13;
        }
      }
      for (const row of picked) {
        context.fillStyle = colours.accent;
        context.fillRect(LEFT + inner + 2, row * each, 6, Math.max(2, each - 0.5));
      }
      if (step >= range[0] && step <= range[1] && steps.length > 0) {
        const k = columnAt(steps, step);
        const [from, to] = [place(sides[k]!), place(sides[k + 1]!)];
        context.strokeStyle = colours.accent;
        context.lineWidth = 1.5;
        context.strokeRect(LEFT + from - 1, 0.75, Math.max(to - from, 1) + 2, height - 1.5);
      }
      context.textAlign = "center";
      for (const one of alarms) {
        const x = place(one.step);
        if (x < 0 || x > inner) continue;
        const y = (one.row + 0.5) * each;
        context.beginPath();
        context.arc(LEFT + x, y, Math.max(4, Math.min(6, each / 2 - 1)), 0, 2 * Math.PI);
        context.fillStyle = colours.surface;
        context.fill();
        context.lineWidth = 2;
        context.strokeStyle = colours.warn;
        context.stroke();
        context.fillStyle = colours.warn;
        context.font = `bold 9px ${colours.font}`;
        context.fillText("!", LEFT + x, y + 0.5);
      }
      context.textAlign = "left";
    },
    [kind, sides, scale, place, inner, height, each, ratio, colours, groups, picked, step, range, steps, alarms],
  );

  const spotAt = (clientX: number, clientY: number) => {
    const bounds = canvas.current!.getBoundingClientRect();
    const row = Math.floor((clientY - bounds.top) / each);
    const x = clientX - bounds.left - LEFT;
    if (row < 0 || row >= size || x < 0 || x > inner || steps.length === 0) return null;
    return { row, column: columnAt(steps, low + (x / inner) * (high - low)) };
  };
  const under = useFrame((x: number, y: number) => hover(spotAt(x, y)));
  const keys = (e: KeyboardEvent): void => {
    const now = at ?? { row: picked[0] ?? 0, column: columnAt(steps, step) };
    const move = ARROWS[e.key];
    if (move)
      hover({
        row: Math.min(Math.max(now.row + move[0], 0), size - 1),
        column: Math.min(Math.max(now.column + move[1], 0), steps.length - 1),
      });
    else if (e.key === "Enter" || e.key === " ") onPick(now.row, steps[now.column]!);
    else return;
    e.preventDefault();
  };
  const value = at ? (kind.values[at.column * size + at.row] ?? -Infinity) : 0;
  const bound = at ? (kind.bound[at.row] ?? -Infinity) : -Infinity;
  return (
    <div class="chart-box" ref={box}>
      <Canvas
        canvas={canvas}
        width={width}
        height={height}
        draw={draw}
        tabIndex={0}
        style={{ width: `${width}px`, height: `${height}px`, display: "block", cursor: "pointer" }}
        label={`Heat map: ${kind.title} of ${count(size, "layer")} in ${count(steps.length, "column")} of steps, from ${number(scale.low)} to ${number(scale.high)}. Arrow keys move, Enter picks a layer and its step.`}
        onPointerMove={(e) => under(e.clientX, e.clientY)}
        onPointerLeave={() => hover(null)}
        onBlur={() => hover(null)}
        onKeyDown={keys}
        onClick={(e) => {
          const spot = spotAt(e.clientX, e.clientY);
          hover(spot);
          if (spot) onPick(spot.row, steps[spot.column]!);
        }}
      />
      {at && at.row < size && at.column < steps.length && (
        <>
          <div
            class="levels-row"
            style={{
              top: `${at.row * each}px`,
              height: `${Math.max(1, each)}px`,
              left: `${LEFT}px`,
              width: `${inner}px`,
            }}
          />
          <Tooltip
            x={LEFT + Math.min(Math.max(place(steps[at.column]!), 0), inner)}
            y={Math.min((at.row + 1) * each + 6, height)}
          >
            <strong class="chart-mono">{kind.names[at.row] || "(model)"}</strong>
            <Pairs
              rows={[
                [columnName(levels, kind, at.column), ""],
                [kind.title, value === -Infinity ? "not measured" : number(value)],
                ...(bound === -Infinity ? [] : [["bound", number(bound)] as const]),
              ]}
            />
          </Tooltip>
        </>
      )}
      <div class="levels-scale">
        <span>
          {kind.title}
          {scale.log ? ", logarithmic" : ""}:
        </span>
        <span>{number(scale.low)}</span>
        <i
          style={{
            background: `linear-gradient(to right, ${[0, 0.2, 0.4, 0.6, 0.8, 1].map((t) => css(sequential(t))).join(",")})`,
          }}
        />
        <span>{number(scale.high)}</span>
        <span>
          <b style={{ background: "var(--bad)" }} /> NaN or Inf
        </span>
        <span>
          <b style={{ background: "var(--sunken)" }} /> not measured
        </span>
      </div>
    </div>
  );
}

/** The steps of a column, in words. */
function columnName({ steps, width, last }: AllLevels, kind: Kind, k: number): string {
  if (width === 1) return `step ${steps[k]}`;
  const end = k + 1 < steps.length ? steps[k + 1]! - 1 : last;
  return `steps ${steps[k]} to ${end}, ${kind.least ? "least" : "greatest"}`;
}
