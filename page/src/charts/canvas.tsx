import type { CanvasHTMLAttributes, RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { shorten } from "../parts/names";

export type Draw = (context: CanvasRenderingContext2D, width: number, height: number) => void;

interface Props extends Omit<CanvasHTMLAttributes<HTMLCanvasElement>, "width" | "height" | "label"> {
  width: number;
  height: number;
  /** What it shows, in words. */
  label: string;
  draw: Draw;
  canvas?: RefObject<HTMLCanvasElement | null>;
}

/** A canvas in CSS pixels, sharp on every screen. It draws when `draw` or its size changes: keep `draw` in `useCallback`. */
export function Canvas({ width, height, label, draw, canvas, ...rest }: Props) {
  const own = useRef<HTMLCanvasElement>(null);
  const ref = canvas ?? own;
  useLayoutEffect(() => {
    const element = ref.current;
    const context = element?.getContext("2d");
    if (!element || !context || width <= 0 || height <= 0) return;
    const ratio = devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  }, [width, height, draw]);
  return (
    <canvas ref={ref} role="img" aria-label={label} style={{ width: `${width}px`, height: `${height}px` }} {...rest} />
  );
}

/** What the arrow keys do to a place in a picture: [rows, columns]. */
export const ARROWS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1],
};

/** `text` cut so that it fits in `room` pixels, "" where not even a few letters do. */
export function fitted(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (room < 14) return "";
  if (context.measureText(text).width <= room) return text;
  let keep = Math.floor((text.length * room) / context.measureText(text).width);
  while (keep > 2 && context.measureText(shorten(text, keep)).width > room) keep--;
  return keep < 3 ? "" : shorten(text, keep);
}

/** A copy on the colour of the panel behind it: a clear picture could not be read on every ground. */
export function opaque(canvas: HTMLCanvasElement): HTMLCanvasElement {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d")!;
  context.fillStyle = getComputedStyle(canvas.closest(".chart-panel") ?? document.body).backgroundColor;
  context.fillRect(0, 0, copy.width, copy.height);
  context.drawImage(canvas, 0, 0);
  return copy;
}
