import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { ARROWS, Canvas } from "../../charts/canvas";
import { css, diverging, sequential, usePalette } from "../../charts/colour";
import { LEFT, RIGHT } from "../../charts/line";
import { useFrame, useWidth } from "../../charts/size";
import { Pairs, Tooltip } from "../../charts/tooltip";
import type { Floats, RankPictures } from "../../data/document";
import { count, number, seconds } from "../../parts/words";
import { apart, cells, evenScale, type Metric, paint, plainScale, stepsOf } from "./picture";

interface Props {
  pictures: RankPictures<Floats>;
  metric: Metric;
  /** How far each rank is from the middle of all, and not the values themselves. */
  differs: boolean;
  step: number;
  onStep: (step: number) => void;
}

const WORDS: Readonly<Record<Metric, string>> = { seconds: "time of a step", gradient: "gradient norm", loss: "loss" };

/** All ranks against the steps. */
export function RankMap({ pictures, metric, differs, step, onStep }: Props) {
  const [box, width] = useWidth<HTMLDivElement>();
  const colours = usePalette();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, hover] = useState<{ row: number; column: number } | null>(null);
  const rows = pictures.ranks.length;
  const inner = Math.max(1, width - LEFT - RIGHT);
  const each = Math.max(5, Math.min(26, Math.floor(420 / rows)));
  const height = rows * each;
  const plain = useMemo(() => cells(pictures, metric, inner), [pictures, metric, inner]);
  const ratio = metric !== "loss";
  const shown = useMemo(() => (differs ? apart(plain, ratio) : plain), [plain, differs, ratio]);
  const scale = useMemo(() => (differs ? evenScale(shown, ratio ? 0.25 : 1e-6) : plainScale(shown)), [shown, differs]);
  const { columns } = plain;

  const draw = useCallback(
    (context: CanvasRenderingContext2D) => {
      context.fillStyle = colours.line;
      context.fillRect(LEFT, 0, inner, height);
      const image = document.createElement("canvas");
      [image.width, image.height] = [columns, rows];
      const bad = (colours.bad.match(/[\d.]+/g) ?? []).map(Number) as unknown as readonly [number, number, number];
      image.getContext("2d")!.putImageData(new ImageData(paint(shown, scale, differs, bad), columns, rows), 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(image, LEFT, 0, inner, height);
      context.font = `10.5px ${colours.font}`;
      context.textBaseline = "middle";
      context.textAlign = "right";
      context.fillStyle = colours.quiet;
      const every = Math.ceil(12 / each);
      pictures.ranks.forEach((rank, r) => {
        if (r % every === 0) context.fillText(`rank ${rank}`, LEFT - 7, Math.max((r + 0.5) * each, 6));
      });
      const place = step / (pictures.width * pictures.count);
      if (place < 1) {
        const wide = Math.max(1, inner / (pictures.width * pictures.count));
        context.strokeStyle = colours.accent;
        context.lineWidth = 1.5;
        context.strokeRect(LEFT + place * inner - 1, 0.75, wide + 2, height - 1.5);
      }
    },
    [shown, scale, differs, inner, height, each, columns, rows, colours, pictures, step],
  );

  const spotAt = (clientX: number, clientY: number) => {
    const bounds = canvas.current!.getBoundingClientRect();
    const row = Math.floor((clientY - bounds.top) / each);
    const column = Math.floor(((clientX - bounds.left - LEFT) / inner) * columns);
    return row < 0 || row >= rows || column < 0 || column >= columns ? null : { row, column };
  };
  const under = useFrame((x: number, y: number) => hover(spotAt(x, y)));
  const keys = (e: KeyboardEvent): void => {
    const now = at ?? { row: 0, column: 0 };
    const move = ARROWS[e.key];
    if (move)
      hover({
        row: Math.min(Math.max(now.row + move[0], 0), rows - 1),
        column: Math.min(Math.max(now.column + move[1], 0), columns - 1),
      });
    else if (e.key === "Enter" || e.key === " ") onStep(stepsOf(pictures, now.column, columns)[0]);
    else return;
    e.preventDefault();
  };
  const said = (v: number): string =>
    v === -Infinity ? "not known" : metric === "seconds" && Number.isFinite(v) ? seconds(v) : number(v);
  const ends = differs && ratio ? [`1/${number(2 ** scale.high)}`, `${number(2 ** scale.high)} times`] : null;
  const steps = at && stepsOf(pictures, at.column, columns);
  const apartSaid = at && differs ? shown.values[at.row * columns + at.column]! : -Infinity;
  return (
    <div class="chart-box" ref={box}>
      <Canvas
        canvas={canvas}
        width={width}
        height={height}
        draw={draw}
        tabIndex={0}
        style={{ width: `${width}px`, height: `${height}px`, display: "block", cursor: "pointer" }}
        label={`Heat map: ${WORDS[metric]} of ${count(rows, "rank")} over ${count(pictures.count * pictures.width, "step")}. Arrow keys move, Enter selects a step.`}
        onPointerMove={(e) => under(e.clientX, e.clientY)}
        onPointerLeave={() => hover(null)}
        onBlur={() => hover(null)}
        onKeyDown={keys}
        onClick={(e) => {
          const spot = spotAt(e.clientX, e.clientY);
          hover(spot);
          if (spot) onStep(stepsOf(pictures, spot.column, columns)[0]);
        }}
      />
      {at && steps && (
        <Tooltip x={LEFT + ((at.column + 0.5) / columns) * inner} y={Math.min((at.row + 1) * each + 6, height)}>
          <strong>rank {pictures.ranks[at.row]}</strong>
          <Pairs
            rows={[
              [steps[0] === steps[1] ? `step ${steps[0]}` : `steps ${steps[0]} to ${steps[1]}, greatest`, ""],
              [WORDS[metric], said(plain.values[at.row * columns + at.column]!)],
              ...(Number.isFinite(apartSaid)
                ? [
                    [
                      "against the middle of the ranks",
                      ratio ? `${number(2 ** apartSaid)} times` : `${apartSaid > 0 ? "+" : ""}${number(apartSaid)}`,
                    ] as const,
                  ]
                : []),
            ]}
          />
        </Tooltip>
      )}
      <div class="ranks-scale">
        <span>{differs ? `${WORDS[metric]} against the middle of the ranks:` : `${WORDS[metric]}:`}</span>
        <span>{ends ? ends[0] : said(scale.low)}</span>
        <i
          style={{
            background: `linear-gradient(to right, ${[0, 0.2, 0.4, 0.6, 0.8, 1].map((t) => css(differs ? diverging(2 * t - 1) : sequential(t))).join(",")})`,
          }}
        />
        <span>{ends ? ends[1] : said(scale.high)}</span>
        <span>
          <b style={{ background: "var(--bad)" }} /> NaN or Inf
        </span>
        <span>
          <b style={{ background: "var(--line)" }} /> not known
        </span>
      </div>
    </div>
  );
}
