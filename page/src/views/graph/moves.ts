import { select } from "d3-selection";
import { type D3ZoomEvent, zoom, zoomIdentity, zoomTransform } from "d3-zoom";
import type { RefObject } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Eye } from "./cull";

interface Moves {
  /** By this factor about the middle. */
  zoom: (factor: number) => void;
  /** To be where it is told to be. */
  put: (eye: Eye) => void;
  keys: (event: KeyboardEvent) => void;
}

/** Mouse, wheel, fingers (d3-zoom) and keys on the picture. `look` is told where they lead to, `fit` sees all. */
export function useMoves(svg: RefObject<SVGSVGElement | null>, look: (eye: Eye) => void, fit: () => void): Moves {
  const latest = useRef(look);
  latest.current = look;
  const picture = () => select<SVGSVGElement, unknown>(svg.current!);
  const behaviour = useMemo(
    () =>
      zoom<SVGSVGElement, unknown>()
        .scaleExtent([0.02, 4])
        .clickDistance(4)
        .filter((e: MouseEvent) => (e.type === "wheel" ? !e.shiftKey : !e.button))
        .on("zoom", (e: D3ZoomEvent<SVGSVGElement, unknown>) => latest.current(e.transform)),
    [],
  );
  const move = (x: number, y: number): void => {
    const { k } = zoomTransform(svg.current!);
    behaviour.translateBy(picture(), x / k, y / k);
  };
  useEffect(() => {
    const element = picture().call(behaviour).on("dblclick.zoom", null);
    const side = (e: WheelEvent): void => {
      if (!e.shiftKey) return;
      e.preventDefault();
      move(-(e.deltaX || e.deltaY) * (e.deltaMode ? 16 : 1), 0);
    };
    element.on("wheel.side", side, { passive: false });
    return () => element.on(".zoom", null).on(".side", null);
  }, []);
  const zoomBy = (factor: number): void => behaviour.scaleBy(picture(), factor);
  const acts: Record<string, () => void> = {
    "+": () => zoomBy(1.25),
    "=": () => zoomBy(1.25),
    "-": () => zoomBy(0.8),
    "0": fit,
    ArrowLeft: () => move(80, 0),
    ArrowRight: () => move(-80, 0),
    ArrowUp: () => move(0, 80),
    ArrowDown: () => move(0, -80),
  };
  return {
    zoom: zoomBy,
    put: ({ x, y, k }) => picture().property("__zoom", zoomIdentity.translate(x, y).scale(k)),
    keys: (event) => {
      const act = acts[event.key];
      if (!act || event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    },
  };
}
