import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type Eye, zoomed } from "./cull";

/** A drag counts as one from here on, in pixels; less is a click. */
const SLIP = 4;

/** Mouse, fingers and keys on the picture. Returns the handler of its keys. */
export function useMoves(
  holder: RefObject<HTMLDivElement | null>,
  eye: { current: Eye },
  look: (next: Eye) => void,
  press: (box: number, twisty: boolean) => void,
  zoom: (factor: number) => void,
  fit: () => void,
): (event: KeyboardEvent) => void {
  // The listeners are put on once; what they call changes with each render.
  const act = useRef({ look, press });
  act.current = { look, press };
  useEffect(() => {
    const element = holder.current!;
    const fingers = new Map<number, { x: number; y: number }>();
    let moved = 0;
    let frame = 0;
    let next: Eye | null = null;
    const soon = (to: Eye): void => {
      next = to;
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        if (next) act.current.look(next);
        next = null;
      });
    };
    const here = (event: MouseEvent): { x: number; y: number } => {
      const box = element.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      const at = next ?? eye.current;
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      if (event.shiftKey) soon({ ...at, x: at.x - (event.deltaX || event.deltaY) * lines });
      else {
        const { x, y } = here(event);
        soon(zoomed(at, Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0015)), x, y));
      }
    };
    const down = (event: PointerEvent): void => {
      if (event.button !== 0 || !(event.target instanceof SVGElement)) return;
      if (fingers.size === 0) moved = 0;
      fingers.set(event.pointerId, here(event));
    };
    const move = (event: PointerEvent): void => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const after = here(event);
      const [dx, dy] = [after.x - before.x, after.y - before.y];
      moved += Math.abs(dx) + Math.abs(dy);
      if (moved < SLIP) return;
      if (!element.hasPointerCapture(event.pointerId)) element.setPointerCapture(event.pointerId);
      const at = next ?? eye.current;
      const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const ratio =
          Math.hypot(after.x - other.x, after.y - other.y) / Math.hypot(before.x - other.x, before.y - other.y);
        const around = { x: (after.x + other.x) / 2, y: (after.y + other.y) / 2 };
        soon(zoomed({ ...at, x: at.x + dx / 2, y: at.y + dy / 2 }, ratio || 1, around.x, around.y));
      } else soon({ ...at, x: at.x + dx, y: at.y + dy });
      fingers.set(event.pointerId, after);
    };
    const up = (event: PointerEvent): void => {
      if (!fingers.delete(event.pointerId) || moved >= SLIP || event.type === "pointercancel") return;
      const target = event.target instanceof Element ? event.target : null;
      const box = target?.closest("[data-box]")?.getAttribute("data-box");
      if (box) act.current.press(Number(box), target?.closest("[data-twisty]") !== null);
    };
    const twice = (event: MouseEvent): void => {
      const frameOf =
        event.target instanceof Element ? event.target.closest(".graph-frame")?.getAttribute("data-box") : null;
      if (frameOf) act.current.press(Number(frameOf), true);
    };
    element.addEventListener("wheel", wheel, { passive: false });
    element.addEventListener("pointerdown", down);
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", up);
    element.addEventListener("pointercancel", up);
    element.addEventListener("dblclick", twice);
    return () => {
      cancelAnimationFrame(frame);
      element.removeEventListener("wheel", wheel);
      element.removeEventListener("pointerdown", down);
      element.removeEventListener("pointermove", move);
      element.removeEventListener("pointerup", up);
      element.removeEventListener("pointercancel", up);
      element.removeEventListener("dblclick", twice);
    };
  }, []);

  return (event) => {
    if (event.target !== holder.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const { x, y, k } = eye.current;
    const step = 80;
    const acts: Record<string, () => void> = {
      "+": () => zoom(1.25),
      "=": () => zoom(1.25),
      "-": () => zoom(0.8),
      "0": fit,
      ArrowLeft: () => look({ k, x: x + step, y }),
      ArrowRight: () => look({ k, x: x - step, y }),
      ArrowUp: () => look({ k, x, y: y + step }),
      ArrowDown: () => look({ k, x, y: y - step }),
    };
    const chosen = acts[event.key];
    if (!chosen) return;
    event.preventDefault();
    chosen();
  };
}
