import { type HierarchyRectangularNode, hierarchy as tree, treemap, treemapSquarify } from "d3-hierarchy";
import type { RefObject } from "preact";
import { useMemo, useState } from "preact/hooks";
import { fill, usePalette } from "../../charts/colour";
import { useWidth } from "../../charts/size";
import { Pairs, Tooltip } from "../../charts/tooltip";
import { shorten } from "../../parts/names";
import { bytes } from "../../parts/words";
import type { Part } from "./hierarchy";

interface Props {
  /** What is shown: its children, and theirs inside them. */
  part: Part;
  total: number;
  height: number;
  onOpen: (part: Part) => void;
  svg: RefObject<SVGSVGElement | null>;
}

type Tile = HierarchyRectangularNode<Part>;
const HEAD = 19;
/** Levels under the part that is shown. */
const LEVELS = 3;

/** A tile with room for its name over the tiles in it; a smaller one is drawn as a whole. */
function isGroup(t: Tile): boolean {
  return t.children !== undefined && t.x1 - t.x0 >= 64 && t.y1 - t.y0 >= HEAD + 24;
}

/** Tiles that are seen, those around others first. */
function drawn(root: Tile): Tile[] {
  const found: Tile[] = [];
  const stack = [...(root.children ?? [])].reverse();
  for (let t = stack.pop(); t; t = stack.pop()) {
    if (t.x1 - t.x0 < 1 || t.y1 - t.y0 < 1) continue;
    found.push(t);
    if (isGroup(t)) stack.push(...[...t.children!].reverse());
  }
  return found;
}

/** Bytes as areas, three levels at a time. A click, or Enter, opens a part. */
export function Treemap({ part, total, height, onOpen, svg }: Props) {
  const [box, width] = useWidth<HTMLDivElement>();
  const colours = usePalette();
  const [at, hover] = useState<Tile | null>(null);
  const tiles = useMemo((): Tile[] => {
    if (width < 20) return [];
    const below = (p: Part): number => {
      let n = 0;
      for (let q: Part | null = p; q && q !== part; q = q.parent) n++;
      return n;
    };
    const shown = tree<Part>(part, (p) => (below(p) < LEVELS ? p.children : []));
    shown
      .sum((p) => (p !== part && (p.children.length === 0 || below(p) === LEVELS) ? p.bytes : 0))
      .sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
    const layout = treemap<Part>()
      .tile(treemapSquarify.ratio(1.5))
      .size([width, height])
      .paddingInner(2)
      .paddingTop((n) => (n.depth > 0 && isGroup(n) ? HEAD : 0))
      .round(true);
    return drawn(layout(shown));
  }, [part, width, height]);
  const share = (p: Part): string => `${total > 0 ? ((100 * p.bytes) / total).toFixed(1) : 0}%`;
  return (
    <div class="chart-box" ref={box}>
      <svg
        ref={svg}
        class="chart-svg memory-map"
        width={width}
        height={height}
        role="group"
        aria-label={`Treemap of ${bytes(part.bytes)} in ${part.name}: ${part.children
          .slice(0, 5)
          .map((c) => `${c.label} ${bytes(c.bytes)}`)
          .join(", ")}.`}
        onPointerLeave={() => hover(null)}
      >
        {tiles.map((t) => {
          const [w, h] = [t.x1 - t.x0, t.y1 - t.y0];
          const p = t.data;
          const group = isGroup(t);
          const opens = p.children.length > 0;
          const room = Math.floor((w - 10) / 6.3);
          const text = h >= 15 ? short(p, Math.floor((w - 10) / 6.3)) : "";
          const size = bytes(p.bytes);
          return (
            <g
              key={p.id}
              class={`memory-tile ${group ? "memory-group" : ""} ${opens ? "memory-opens" : ""}`}
              transform={`translate(${t.x0} ${t.y0})`}
              onPointerEnter={() => hover(t)}
              onFocus={() => hover(t)}
              onBlur={() => hover(null)}
              onClick={() => opens && onOpen(p)}
              {...(opens
                ? {
                    tabIndex: 0,
                    role: "button",
                    "aria-label": `${p.name}: ${size}, ${share(p)}. Open`,
                    onKeyDown: (e: KeyboardEvent) => {
                      if (e.key !== "Enter" && e.key !== " ") return;
                      e.preventDefault();
                      onOpen(p);
                    },
                  }
                : {})}
            >
              <rect width={w} height={h} rx={2} fill={group ? colours.sunken : fill(p.alike, colours.dark)} />
              {text && (
                <text x={5} y={group || h < 34 ? Math.min(13, h / 2 + 4) : 14}>
                  {text}
                  {group && room > p.label.length + size.length + 2 && <tspan class="memory-size"> {size}</tspan>}
                </text>
              )}
              {text && !group && h >= 34 && room >= size.length && (
                <text x={5} y={28} class="memory-size">
                  {size}
                </text>
              )}
            </g>
          );
        })}
      </svg>
      {at && (
        <Tooltip x={(at.x0 + at.x1) / 2} y={Math.min(at.y0 + 22, height - 60)}>
          <strong class="chart-mono">{at.data.name}</strong>
          <Pairs
            rows={[
              ["kept", bytes(at.data.bytes)],
              ["share of all", share(at.data)],
              ["tensors", at.data.tensors.toLocaleString("en-US")],
            ]}
          />
        </Tooltip>
      )}
    </div>
  );
}

/** A label in so many letters; of a line the number is what is kept. */
function short(p: Part, room: number): string {
  if (p.label.length <= room) return p.label;
  if (room < 3) return "";
  if (p.kind !== "line") return shorten(p.label, room);
  const number = p.label.slice(p.label.lastIndexOf(":"));
  return number.length <= room ? number : "";
}
