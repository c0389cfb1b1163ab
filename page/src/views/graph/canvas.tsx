import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { BoxView } from "./box";
import { drawn, type Eye, find, fitted, type Region, region } from "./cull";
import { type Emphasis, within } from "./emphasis";
import { Frame } from "./frame";
import type { Inner } from "./layout";
import type { Metric } from "./metrics";
import { useMoves } from "./moves";
import type { Scene } from "./scene";
import { Patterns, WireView } from "./wires";

export interface CanvasProps {
  scene: Scene;
  picture: Inner;
  metric: Metric;
  chosen: number | null;
  emphasis: Emphasis | null;
  /** Flows of a group that the path goes along, as `from,to`. */
  marked: (group: number) => ReadonlySet<string>;
  /** A box was pressed: choose it, and open or close it. */
  press: (box: number, toggle: boolean) => void;
  /** A box to bring into sight; a new object does it again. */
  sight: { box: number } | null;
  svg: RefObject<SVGSVGElement | null>;
}

/** The picture, to be moved and zoomed. A move changes one attribute; only what comes into sight is drawn. */
export function Canvas(props: CanvasProps) {
  const { scene, picture, metric, chosen, emphasis, svg } = props;
  const { h } = scene;
  const holder = useRef<HTMLDivElement>(null);
  const layer = useRef<SVGGElement>(null);
  const eye = useRef<Eye>({ x: 0, y: 0, k: 1 });
  const anchor = useRef<{ box: number; x: number; y: number } | null>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [seen, setSeen] = useState<{ region: Region; k: number } | null>(null);

  const look = (next: Eye, force = false): void => {
    eye.current = next;
    layer.current?.setAttribute("transform", `translate(${next.x},${next.y}) scale(${next.k})`);
    const now = region(next, size.width, size.height, 0);
    const old = seen?.region;
    const inside =
      old && now.left >= old.left && now.top >= old.top && now.right <= old.right && now.bottom <= old.bottom;
    if (force || !inside || next.k > 1.6 * seen.k || next.k < 0.6 * seen.k) {
      setSeen({ region: region(next, size.width, size.height, 0.5), k: next.k });
    }
  };
  const go = (next: Eye): void => {
    moves.put(next);
    look(next, true);
  };
  const fit = (): void => go(fitted(picture, size.width, size.height));
  const moves = useMoves(svg, look, fit);
  const place = (box: number) => find(picture, chainOf(scene, box), box);

  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => {
      const { width, height } = entry!.contentRect;
      setSize({ width, height });
    });
    watch.observe(holder.current!);
    return () => watch.disconnect();
  }, []);

  // A new graph is fitted; a group that was opened or closed stays where it is on the screen.
  // A run that goes on brings the same graph anew: that is no reason to move.
  const graph = `${scene.call.index} ${h.sequence.length}`;
  const shown = useRef<{ graph: string; size: typeof size } | null>(null);
  useLayoutEffect(() => {
    if (size.width === 0) return;
    const spot = anchor.current ? place(anchor.current.box) : null;
    // biome-ignore lint/suspicious/noFocusedTests: not the fit of a test
    if (shown.current?.graph !== graph) fit();
    else if (shown.current.size !== size) {
      // What was in the middle stays there.
      const { x, y, k } = eye.current;
      const old = shown.current.size;
      go({ k, x: x + (size.width - old.width) / 2, y: y + (size.height - old.height) / 2 });
    } else if (anchor.current && spot) {
      const { k } = eye.current;
      const [left, top] = [anchor.current.x, anchor.current.y];
      const wide = spot.width * k;
      const out = left < 0 || left + wide > size.width;
      const x = out ? Math.max(16, (size.width - wide) / 2) : left;
      const y = spot.inner && top > 0.6 * size.height ? 0.25 * size.height : top;
      go({ k, x: x - spot.left * k, y: y - spot.top * k });
    } else look(eye.current, true);
    shown.current = { graph, size };
    anchor.current = null;
  }, [picture, size]);

  useLayoutEffect(() => {
    const spot = props.sight && size.width > 0 ? place(props.sight.box) : null;
    if (!spot) return;
    const k = Math.max(0.7, Math.min(1.2, eye.current.k));
    const y = spot.inner ? 60 - spot.top * k : size.height / 2 - (spot.top + spot.height / 2) * k;
    go({ k, x: size.width / 2 - (spot.left + spot.width / 2) * k, y });
  }, [props.sight, size.width > 0]);

  const press = (box: number, twisty: boolean): void => {
    const spot = place(box);
    const { x, y, k } = eye.current;
    if (spot) anchor.current = { box, x: spot.left * k + x, y: spot.top * k + y };
    const opens = box > 0 && h.groups[box]!.kind !== "cut" && (twisty || !spot?.inner);
    props.press(box, opens);
  };
  const click = ({ target }: Event): void => {
    const box = target instanceof Element ? target.closest("[data-box]")?.getAttribute("data-box") : null;
    if (box) press(Number(box), (target as Element).closest("[data-twisty]") !== null);
  };
  const twice = ({ target }: Event): void => {
    const frame = target instanceof Element ? target.closest(".graph-frame")?.getAttribute("data-box") : null;
    if (frame) press(Number(frame), true);
  };

  const now = useMemo(() => (seen ? drawn(picture, seen.region, seen.k) : null), [picture, seen]);
  const { x, y, k } = eye.current;
  return (
    <div
      class="graph-canvas"
      ref={holder}
      tabIndex={0}
      onKeyDown={moves.keys}
      aria-label="Picture of the graph. Plus and minus zoom, arrows move, 0 fits. The outline says the same as text."
      role="application"
    >
      <svg ref={svg} width={size.width} height={size.height} aria-hidden="true" onClick={click} onDblClick={twice}>
        <Patterns />
        <g ref={layer} transform={`translate(${x},${y}) scale(${k})`}>
          {now?.frames.map((spot) => (
            <Frame
              key={spot.box}
              scene={scene}
              metric={metric}
              spot={spot}
              chosen={spot.box === chosen}
              faded={emphasis !== null && spot.box !== chosen && within(h, emphasis, spot.box) === 0}
            />
          ))}
          {now?.wires.map(({ group, wire, path, middle }) => {
            const marked = props.marked(group).has(`${wire.flow.from},${wire.flow.to}`);
            return (
              <WireView
                key={`${group}.${wire.flow.from}.${wire.flow.to}`}
                scene={scene}
                group={group}
                flow={wire.flow}
                path={path}
                middle={middle}
                marked={marked}
                faded={emphasis !== null && !marked}
              />
            );
          })}
          {now?.boxes.map((spot) => {
            const count = emphasis ? within(h, emphasis, spot.box) : 0;
            const { box, left, top, width, height } = spot;
            return (
              <BoxView
                key={box}
                {...{ scene, metric, box, left, top, width, height }}
                chosen={box === chosen}
                faded={emphasis !== null && box !== chosen && count === 0}
                onPath={count > 0}
              />
            );
          })}
        </g>
      </svg>
      {now && now.more > 0 && (
        <p
          class="graph-toomany"
          role="status"
        >{`${now.more.toLocaleString("en-US")} more boxes are here: zoom in, or close some groups`}</p>
      )}
      <div class="graph-zoom" role="group" aria-label="Zoom">
        <button type="button" onClick={() => moves.zoom(1.25)} aria-label="Zoom in" title="Zoom in (+)">
          +
        </button>
        <button type="button" onClick={() => moves.zoom(0.8)} aria-label="Zoom out" title="Zoom out (−)">
          −
        </button>
        <button type="button" onClick={fit} title="Fit the picture (0)">
          Fit
        </button>
      </div>
    </div>
  );
}

/** The groups around a box, outermost first, without the whole. */
function chainOf({ h }: Scene, box: number): number[] {
  const chain: number[] = [];
  for (let id = h.around(box); id > 0; id = h.groups[id]!.parent) chain.unshift(id);
  return chain;
}
