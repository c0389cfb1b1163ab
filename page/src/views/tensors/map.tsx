import type { RefObject } from "preact";
import { useCallback, useState } from "preact/hooks";
import { Canvas } from "../../charts/canvas";
import { css, diverging } from "../../charts/colour";
import { useFrame, useWidth } from "../../charts/size";
import { Tooltip } from "../../charts/tooltip";
import { count, number } from "../../parts/words";
import { type Captured, greatest } from "./groups";

/** A small picture of a tensor: blue below zero, orange above. What is not finite is black, and the numbers say so. */
export function TensorMap({ tensor, canvas }: { tensor: Captured; canvas: RefObject<HTMLCanvasElement | null> }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const [at, hover] = useState<{ row: number; column: number } | null>(null);
  const map = tensor.map!;
  const top = greatest(map.values);
  const inner = Math.min(width, 640);
  const cell = Math.min(inner / Math.max(1, map.columns), 420 / Math.max(1, map.rows), 26);
  // A map much wider than high, as of a bias, still gets a height that the eye can read.
  const [w, h] = [Math.max(1, Math.round(cell * map.columns)), Math.max(18, Math.round(cell * map.rows))];
  const draw = useCallback(
    (context: CanvasRenderingContext2D) => {
      const image = document.createElement("canvas");
      [image.width, image.height] = [map.columns, map.rows];
      const pixels = new Uint8ClampedArray(map.rows * map.columns * 4);
      map.values.forEach((v, i) =>
        pixels.set(Number.isFinite(v) ? [...diverging(top > 0 ? v / top : 0), 255] : [0, 0, 0, 255], 4 * i),
      );
      image.getContext("2d")!.putImageData(new ImageData(pixels, map.columns, map.rows), 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(image, 0, 0, w, h);
    },
    [map, top, w, h],
  );
  const under = useFrame((x: number, y: number) => {
    const bounds = canvas.current!.getBoundingClientRect();
    const [column, row] = [
      Math.floor(((x - bounds.left) / w) * map.columns),
      Math.floor(((y - bounds.top) / h) * map.rows),
    ];
    hover(row >= 0 && row < map.rows && column >= 0 && column < map.columns ? { row, column } : null);
  });
  const keys = (e: KeyboardEvent): void => {
    const move = (
      { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] } as Record<
        string,
        [number, number]
      >
    )[e.key];
    if (!move) return;
    e.preventDefault();
    const now = at ?? { row: 0, column: 0 };
    hover({
      row: Math.min(Math.max(now.row + move[0], 0), map.rows - 1),
      column: Math.min(Math.max(now.column + move[1], 0), map.columns - 1),
    });
  };
  const across = tensor.shape[tensor.shape.length - 1] ?? 1;
  const down = tensor.shape.slice(0, -1).reduce((n, s) => n * s, 1);
  return (
    <div class="chart-box" ref={box}>
      {map.rows * map.columns > 0 && width > 0 && (
        <Canvas
          canvas={canvas}
          width={w}
          height={h}
          draw={draw}
          tabIndex={0}
          class="tensors-map"
          label={`Map of ${tensor.name}, step ${tensor.step}: ${map.rows} by ${map.columns} cells, each the mean of its part, between ${number(-top)} and ${number(top)}. Arrow keys read the cells.`}
          onPointerMove={(e) => under(e.clientX, e.clientY)}
          onPointerLeave={() => hover(null)}
          onBlur={() => hover(null)}
          onKeyDown={keys}
        />
      )}
      {at && (
        <Tooltip x={((at.column + 0.5) * w) / map.columns} y={Math.min(((at.row + 1) * h) / map.rows + 4, h)}>
          <strong>{number(map.values[at.row * map.columns + at.column])}</strong> {span("rows", at.row, map.rows, down)}
          , {span("columns", at.column, map.columns, across)}
        </Tooltip>
      )}
      <div class="tensors-scale">
        <span>{number(-top)}</span>
        <i
          style={{
            background: `linear-gradient(to right, ${[-1, -0.5, 0, 0.5, 1].map((t) => css(diverging(t))).join(",")})`,
          }}
        />
        <span>{number(top)}</span>
        <span class="quiet">
          {down * across > map.rows * map.columns
            ? `each cell is the mean of about ${count(Math.round((down * across) / (map.rows * map.columns)), "value")}`
            : "each cell is one value"}
        </span>
      </div>
    </div>
  );
}

/** Which rows or columns of the tensor a cell covers. */
function span(what: string, k: number, cells: number, size: number): string {
  const [first, last] = [
    Math.floor((k * size) / cells),
    Math.max(Math.floor((k * size) / cells), Math.ceil(((k + 1) * size) / cells) - 1),
  ];
  return first === last ? `${what.slice(0, -1)} ${first}` : `${what} ${first}–${last}`;
}
