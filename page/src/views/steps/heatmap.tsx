import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { ARROWS, Canvas, fitted } from "../../charts/canvas";
import { css, sequential, usePalette } from "../../charts/colour";
import { LEFT, RIGHT } from "../../charts/line";
import { padded } from "../../charts/scale";
import { useFrame, useWidth } from "../../charts/size";
import { Pairs, Tooltip } from "../../charts/tooltip";
import type { Model } from "../../data/model";
import { count, norm, number } from "../../parts/words";
import { brackets, parameterItems } from "../flow/items";
import type { Metric } from "../flow/values";
import { cells, covered, extentOf, matrix, paint, seenBuckets } from "./heat";

interface Props {
  model: Model;
  metric: Metric;
  range: readonly [number, number];
  /** The selected one. */
  step: number;
  picked: readonly number[];
  onPick: (parameter: number) => void;
}

/** All parameters against the steps: what to look at closer. */
export function Heatmap({ model, metric, range, step, picked, onPick }: Props) {
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
  const [low, high] = padded(range[0], range[1], inner);
  const scale = useCallback((at: number) => LEFT + ((at - low) / (high - low)) * inner, [inner, low, high]);

  const draw = useCallback(
    (context: CanvasRenderingContext2D) => {
      const made = cells(
        values,
        doc.steps,
        [first, last],
        Math.round(height * ratio),
        Math.round(inner * ratio),
        (at) => (scale(at) - LEFT) * ratio,
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
        context.imageSmoothingEnabled = false;
        context.drawImage(image, LEFT, 0, inner, height);
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
      if (step >= range[0] && step <= range[1]) {
        const [from, to] = [scale(step - 0.5), scale(step + 0.5)];
        context.strokeStyle = colours.accent;
        context.lineWidth = 1.5;
        context.strokeRect(from - 1, 0.75, Math.max(to - from, 1) + 2, height - 1.5);
      }
    },
    [values, doc, extent, first, last, inner, height, colours, picked, scale, rows, count_, ratio, step, range],
  );

  const spotAt = (clientX: number, clientY: number): { p: number; k: number } | null => {
    const bounds = canvas.current!.getBoundingClientRect();
    const p = Math.floor(((clientY - bounds.top) / height) * count_);
    const x = clientX - bounds.left - LEFT;
    if (p < 0 || p >= count_ || x < 0 || x > inner) return null;
    const under = Math.min(Math.max(Math.round(low + (x / inner) * (high - low)), range[0]), range[1]);
    return { p, k: seenBuckets(start, doc.steps.index, under, under)[0] };
  };
  const under = useFrame((x: number, y: number) => hover(spotAt(x, y)));
  const keys = (e: KeyboardEvent): void => {
    const now = at ?? { p: 0, k: first };
    const move = ARROWS[e.key];
    if (move)
      hover({
        p: Math.min(Math.max(now.p + move[0], 0), count_ - 1),
        k: Math.min(Math.max(now.k + move[1], first), last - 1),
      });
    else if (e.key === "Enter" || e.key === " ") onPick(now.p);
    else return;
    e.preventDefault();
  };
  const steps = at && bucketName(model, at.k);
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
        onClick={(e) => {
          // A finger presses where nothing hovered before.
          const spot = spotAt(e.clientX, e.clientY);
          hover(spot);
          if (spot) onPick(spot.p);
        }}
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
          >
            <strong class="chart-mono">{doc.parameters[at.p]!.name}</strong>
            <Pairs
              rows={[
                [steps!, ""],
                [metric, norm(values[at.k * doc.steps.series.size + at.p])],
              ]}
            />
          </Tooltip>
        </>
      )}
      <div class="steps-scale">
        <span>{metric === "ratio" ? "update / weight" : `norm of the ${metric}`}, logarithmic:</span>
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
function bucketName({ doc }: Model, k: number): string {
  const [first, last] = covered(doc.steps, k);
  return last - first === 1 ? `step ${first + 0.5}` : `steps ${first + 0.5} to ${last - 0.5}, greatest`;
}
