import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { RefObject } from "preact";
import { useLayoutEffect, useReducer, useRef } from "preact/hooks";

/** Which of `count` rows of one height are to be in the page while `box` scrolls: the first, and the one after the last. */
export function useRows(box: RefObject<HTMLElement | null>, count: number, height: number): [number, number] {
  const [, draw] = useReducer((n: number, _: undefined) => n + 1, 0);
  const made = useRef<Virtualizer<HTMLElement, Element> | null>(null);
  const options = {
    count,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    overscan: 8,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    initialRect: { width: 0, height: 20 * height },
    onChange: () => draw(undefined),
  };
  made.current ??= new Virtualizer(options);
  const rows = made.current;
  rows.setOptions(options);
  useLayoutEffect(() => rows._didMount(), []);
  useLayoutEffect(() => rows._willUpdate());
  const items = rows.getVirtualItems();
  return [items[0]?.index ?? 0, (items.at(-1)?.index ?? -1) + 1];
}
