import type { ComponentChildren } from "preact";

/** A box beside the pointer, inside a positioned parent of width `within`. It never takes the pointer. */
export function Tooltip({
  x,
  y,
  within,
  children,
}: {
  x: number;
  y: number;
  within: number;
  children: ComponentChildren;
}) {
  const left = x < within / 2;
  const side = left ? { left: `${Math.max(0, x + 14)}px` } : { right: `${Math.max(0, within - x + 14)}px` };
  return (
    <div
      class="chart-tooltip"
      role="status"
      style={{ ...side, top: `${y}px`, maxWidth: `${Math.max(180, Math.min(420, within - 20))}px` }}
    >
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
