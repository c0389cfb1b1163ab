import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { Canvas, fitted } from "../../charts/canvas";
import { css, sequential, usePalette } from "../../charts/colour";
import { useFrame, useWidth } from "../../charts/size";
import { Pairs, Tooltip } from "../../charts/tooltip";
import type { Model } from "../../data/model";
import { count, norm, number } from "../../parts/words";
import { brackets, parameterItems } from "../flow/items";
import type { Metric } from "../flow/values";
import { cells, extentOf, matrix, paint, seenBuckets } from "./heat";

interface Props {
  model: Model;
  metric: Metric;
  range: readonly [number, number];
  picked: readonly number[];
  onPick: (parameter: number) => void;
}

/** Where the charts above have their axis: the steps stand one under the other. */
const [LEFT, RIGHT] = [54, 18];

/** All parameters against the steps: what to look at closer. */
export function Heatmap({ model, metric, range, picked, onPick }: Props) {
  const { doc } = model;
  const { start } = doc.steps.series;
  const [box, width] = useWidth<HTMLDivElement>();
  const colours = usePalette();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, hover] = useState<{ p: number; k: number } | null>(null);
  const count_ = doc.parameters.length;
  const inner = Math.max(1, width - LEFT - RIGHT);
  const height = Math.round(Math.min(440, Math.max(60, count_ * 14)));
  const values = useMemo(() => matrix(doc, metric), [doc, metric]);
  const extent = useMemo(() => extentOf(values), [values]);
  const [first, last] = useMemo(
    () => seenBuckets(start, doc.steps.index, range[0], range[1]),
    [start, range[0], range[1]],
  );
  const rows = useMemo(() => brackets(parameterItems(model), 3), [model]);
  const ratio = typeof devicePixelRatio === "number" ? devicePixelRatio : 1;

  // A bucket is as wide as the steps it covers, on the same scale as the charts above.
  const scale = useCallback(
    (step: number) => LEFT + ((step - range[0]) / Math.max(1e-9, range[1] - range[0])) * inner,
    [inner, range[0], range[1]],
  );
  const ends = useMemo(() => {
    const { index } = doc.steps;
    const stop = last < start.length ? index[start[last]!]! : (index[index.length - 1] ?? 0) + 1;
    return [index[start[first]!] ?? 0, stop] as const;
  }, [doc, first, last]);

  const draw = useCallback(
    (context: CanvasRenderingContext2D) => {
      const made = cells(
        values,
        start.length,
        count_,
        first,
        last,
        Math.round(height * ratio),
        Math.round(inner * ratio),
      );
      context.fillStyle = colours.sunken;
      context.fillRect(LEFT, 0, inner, height);
      if (made.columns > 0) {
        const image = document.createElement("canvas");
        [image.width, image.height] = [made.columns, made.rows];
        const rgb = (text: string) =>
          (text.match(/[\d.]+/g) ?? []).map(Number).slice(0, 3) as unknown as readonly [number, number, number];
        image
          .getContext("2d")!
          .putImageData(
            new ImageData(
              paint(made, extent, { bad: rgb(colours.bad), zero: rgb(colours.update) }),
              made.columns,
              made.rows,
            ),
            0,
            0,
          );
        context.save();
        context.beginPath();
        context.rect(LEFT, 0, inner, height);
        context.clip();
        context.imageSmoothingEnabled = false;
        const [from, to] = [scale(ends[0]), scale(ends[1])];
        context.drawImage(image, from, 0, to - from, height);
        context.restore();
      }
      const each = height / count_;
      context.font = `10.5px ${colours.font}`;
      context.textBaseline = "middle";
      context.textAlign = "right";
      const legible = rows.map((r) => r.filter((b) => (b.last - b.first + 1) * each >= 8.5));
      const row = legible.reduce((best, r) => (r.length > best.length ? r : best), rows[0] ?? []);
      let free = 0;
      for (const b of row) {
        const [top, bottom] = [b.first * each, (b.last + 1) * each];
        context.fillStyle = colours.line;
        context.fillRect(LEFT - 4, top + 0.5, 1.5, bottom - top - 1);
        context.fillStyle = colours.quiet;
        // A name needs a line of its own; rows between two names have their mark alone.
        const middle = (top + bottom) / 2;
        if (bottom - top < 8.5 || middle < free) continue;
        context.fillText(fitted(context, b.label, LEFT - 8), LEFT - 7, middle);
        free = middle + 13;
      }
      for (const p of picked) {
        context.fillStyle = colours.accent;
        context.fillRect(LEFT + inner + 2, p * each, 6, Math.max(2, each - 0.5));
      }
      context.textAlign = "left";
    },
    [values, extent, first, last, inner, height, colours, picked, scale, rows, count_, ratio],
  );

  const under = useFrame((clientX: number, clientY: number) => {
    const bounds = canvas.current!.getBoundingClientRect();
    const p = Math.floor(((clientY - bounds.top) / height) * count_);
    const step = range[0] + ((clientX - bounds.left - LEFT) / inner) * (range[1] - range[0]);
    if (p < 0 || p >= count_ || clientX - bounds.left < LEFT || step > range[1]) return hover(null);
    hover({ p, k: seenBuckets(start, doc.steps.index, step, step)[0] });
  });
  const keys = (e: KeyboardEvent): void => {
    const now = at ?? { p: 0, k: first };
    const move = (
      { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] } as Record<
        string,
        [number, number]
      >
    )[e.key];
    if (move)
      hover({
        p: Math.min(Math.max(now.p + move[0], 0), count_ - 1),
        k: Math.min(Math.max(now.k + move[1], first), last - 1),
      });
    else if (e.key === "Enter" || e.key === " ") onPick(now.p);
    else return;
    e.preventDefault();
  };
  const steps = at && covered(model, at.k);
  return (
    <div class="chart-box" ref={box}>
      <Canvas
        canvas={canvas}
        width={width}
        height={height}
        draw={draw}
        tabIndex={0}
        style={{ width: `${width}px`, height: `${height}px`, display: "block", cursor: "pointer" }}
        label={`Heat map: ${metric} of ${count(count_, "parameter")} over the steps ${range[0]} to ${range[1]}, from ${number(extent.low)} to ${number(extent.high)}. Arrow keys move, Enter picks a parameter.`}
        onPointerMove={(e) => under(e.clientX, e.clientY)}
        onPointerLeave={() => hover(null)}
        onBlur={() => hover(null)}
        onKeyDown={keys}
        onClick={() => at && onPick(at.p)}
      />
      {at && (
        <>
          <div
            class="steps-row"
            style={{
              top: `${(at.p * height) / count_}px`,
              height: `${Math.max(1, height / count_)}px`,
              left: `${LEFT}px`,
              width: `${inner}px`,
            }}
          />
          <Tooltip
            x={Math.min(Math.max(scale(doc.steps.index[start[at.k]!]!), LEFT), LEFT + inner)}
            y={Math.min((at.p * height) / count_ + 12, height - 40)}
            within={width}
          >
            <strong class="chart-mono">{doc.parameters[at.p]!.name}</strong>
            <Pairs
              rows={[
                [steps!, ""],
                [metric, norm(values[at.p * start.length + at.k])],
              ]}
            />
          </Tooltip>
        </>
      )}
      <div class="steps-scale">
        <span>{number(extent.low)}</span>
        <i
          style={{
            background: `linear-gradient(to right, ${[0, 0.2, 0.4, 0.6, 0.8, 1].map((t) => css(sequential(t))).join(",")})`,
          }}
        />
        <span>{number(extent.high)}</span>
        {(
          [
            ["bad", "NaN or Inf"],
            ["update", "zero"],
            ["sunken", "not measured"],
          ] as const
        ).map(([colour, word]) => (
          <span key={word}>
            <b style={{ background: `var(--${colour})` }} /> {word}
          </span>
        ))}
      </div>
    </div>
  );
}

/** The steps of a bucket, in words. */
function covered({ doc }: Model, k: number): string {
  const { index, series } = doc.steps;
  const first = index[series.start[k]!]!;
  const last = index[(k + 1 < series.start.length ? series.start[k + 1]! : index.length) - 1]!;
  return first === last ? `step ${first}` : `steps ${first} to ${last}, greatest`;
}
