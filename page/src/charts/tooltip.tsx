import { autoUpdate, computePosition, flip, offset, shift } from "@floating-ui/dom";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/** A box beside a place of the positioned parent that it is in, moved to where the window shows it. It never takes the pointer. */
export function Tooltip({ x, y, children }: { x: number; y: number; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const floating = box.current!;
    const place = {
      contextElement: floating.parentElement!,
      getBoundingClientRect: () => {
        const { left, top } = floating.parentElement!.getBoundingClientRect();
        return new DOMRect(left + x, top + y, 0, 0);
      },
    };
    return autoUpdate(place, floating, async () => {
      const at = await computePosition(place, floating, {
        placement: "right-start",
        middleware: [offset(14), flip(), shift({ padding: 6, crossAxis: true })],
      });
      Object.assign(floating.style, { left: `${at.x}px`, top: `${at.y}px` });
    });
  }, [x, y]);
  return (
    <div class="chart-tooltip" role="status" ref={box}>
      {children}
    </div>
  );
}

/** Names and values in two columns. */
export function Pairs({ rows }: { rows: readonly (readonly [string, string])[] }) {
  return (
    <dl class="chart-pairs">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
