import type { Bracket } from "./items";

interface Props {
  rows: readonly Bracket[][];
  x: (item: number) => number;
  slot: number;
  top: number;
  left: number;
  right: number;
}

/** Modules under the axis: one row for each depth, a name where it fits. The name stays in sight while a person scrolls. */
export function Brackets({ rows, x, slot, top, left, right }: Props) {
  return (
    <g class="flow-brackets">
      {rows.map((row, k) =>
        row.map((b) => {
          const from = Math.max(left, x(b.first) - slot / 2 + 1);
          const to = Math.min(right, x(b.last) + slot / 2 - 1);
          const room = to - from;
          if (room < 1.5) return null;
          const letters = Math.floor((room - 6) / 6.2);
          return (
            <g key={`${b.first}-${k}`}>
              <rect x={from} width={room} y={top + k * 20} height={17} rx={Math.min(3, room / 2)} />
              {letters >= Math.min(b.label.length, 3) && (
                <text x={(from + to) / 2} y={top + k * 20 + 9} text-anchor="middle" dominant-baseline="middle">
                  {b.label.length <= letters ? b.label : `${b.label.slice(0, letters - 1)}…`}
                </text>
              )}
              <title>{b.label}</title>
            </g>
          );
        }),
      )}
    </g>
  );
}
