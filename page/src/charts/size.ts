import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** An element's width in CSS pixels, kept up to date; 0 before the first layout. */
export function useWidth<E extends HTMLElement>(): [RefObject<E | null>, number] {
  const ref = useRef<E>(null);
  const [width, change] = useState(0);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const read = (): void => change(Math.floor(element.clientWidth));
    read();
    const watch = new ResizeObserver(read);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return [ref, width];
}

/** Calls `then` at most once a frame, with the latest arguments. */
export function useFrame<A extends unknown[]>(then: (...args: A) => void): (...args: A) => void {
  const latest = useRef(then);
  latest.current = then;
  const waiting = useRef<{ args: A } | null>(null);
  const made = useRef<((...args: A) => void) | null>(null);
  made.current ??= (...args) => {
    const first = waiting.current === null;
    waiting.current = { args };
    if (!first) return;
    requestAnimationFrame(() => {
      const due = waiting.current;
      waiting.current = null;
      if (due) latest.current(...due.args);
    });
  };
  return made.current;
}
