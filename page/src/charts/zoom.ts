/** The seen part of an axis from 0 to a total: moved and zoomed by wheel, mouse and fingers (d3-zoom), keys and buttons. */
import { select } from "d3-selection";
import { type D3ZoomEvent, zoom, zoomIdentity } from "d3-zoom";
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

export type Range = [number, number];
type Seen = readonly [number, number];

/** A range inside 0 to `total`, at least `least` long. */
export function clamped([low, high]: Seen, total: number, least: number): Range {
  const size = Math.min(total, Math.max(high - low, least));
  const from = Math.min(Math.max(low, 0), total - size);
  return [from, from + size];
}

/** `factor` below 1 is closer; `centre` stays where it is. */
export function zoomed([low, high]: Seen, factor: number, centre: number, total: number, least: number): Range {
  return clamped([centre - (centre - low) * factor, centre + (high - centre) * factor], total, least);
}

interface Axis {
  range: Seen;
  total: number;
  least: number;
  /** Where it begins, and how long it is, in pixels. */
  left: number;
  width: number;
  /** Whether a drag moves it. */
  drag: boolean;
  onRange: (range: Range) => void;
}

/** A plain turn of the wheel goes on to the page, and so does a finger that moves up or down: nobody gets stuck here. */
export function useZoom(ref: RefObject<HTMLElement | null>, axis: Axis): void {
  const { range, total, least, left, width, drag } = axis;
  const latest = useRef(axis);
  latest.current = axis;
  useEffect(() => {
    if (width <= 0) return;
    const unit = total / width;
    const behaviour = zoom<HTMLElement, unknown>()
      .extent([
        [left, 0],
        [left + width, 1],
      ])
      .translateExtent([
        [left, -Infinity],
        [left + width, Infinity],
      ])
      .scaleExtent([1, total / least])
      .clickDistance(3)
      .filter((e: MouseEvent & TouchEvent) =>
        e.touches ? e.touches.length > 1 : e.type === "wheel" ? e.ctrlKey || e.metaKey : drag && e.button === 0,
      )
      .wheelDelta((e) => -e.deltaY * (e.deltaMode ? 0.08 : 0.005))
      .on("zoom", ({ transform }: D3ZoomEvent<HTMLElement, unknown>) => {
        const at = (x: number): number => (transform.invertX(x) - left) * unit;
        latest.current.onRange([at(left), at(left + width)]);
      });
    const element = select<HTMLElement, unknown>(ref.current!).call(behaviour).on("dblclick.zoom", null);
    const side = (pixels: number): void => {
      const [low, high] = latest.current.range;
      behaviour.translateBy(element, (-pixels * (high - low)) / total, 0);
    };
    let finger: number | null = null;
    element
      .on(
        "wheel.side",
        (e: WheelEvent) => {
          const by = e.shiftKey ? e.deltaY || e.deltaX : Math.abs(e.deltaX) > Math.abs(e.deltaY) ? e.deltaX : 0;
          if (!drag || !by || e.ctrlKey || e.metaKey) return;
          e.preventDefault();
          side(by);
        },
        { passive: false },
      )
      .on("pointerdown.side", (e: PointerEvent) => {
        finger = drag && e.pointerType === "touch" && e.isPrimary ? e.clientX : null;
      })
      .on("pointermove.side", (e: PointerEvent) => {
        if (finger === null || !e.isPrimary) return;
        side(finger - e.clientX);
        finger = e.clientX;
      })
      .on("pointerup.side pointercancel.side", () => (finger = null));
    return () => element.on(".zoom", null).on(".side", null);
  }, [total, least, left, width, drag]);
  // What is seen is said by the address: every gesture starts from there.
  useLayoutEffect(() => {
    const k = total / (range[1] - range[0]);
    const at = zoomIdentity.translate(left * (1 - k) - (range[0] * k * width) / total, 0).scale(k);
    select(ref.current).property("__zoom", at);
  }, [range[0], range[1], total, left, width]);
}
