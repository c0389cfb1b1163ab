import { useEffect, useRef } from "preact/hooks";
import { shorten } from "../../parts/names";
import { count } from "../../parts/words";
import { cells } from "./cells";
import { type Emphasis, within } from "./emphasis";
import type { Metric } from "./metrics";
import { fullName, nameOf } from "./names";
import { visible } from "./opened";
import { colour, inkOn } from "./scale";
import type { Scene } from "./scene";

/** Rows of an outline; more would make it slow, and nobody reads them. */
const MOST_ROWS = 600;

interface OutlineProps {
  scene: Scene;
  open: ReadonlySet<number>;
  metric: Metric;
  chosen: number | null;
  emphasis: Emphasis | null;
  choose: (box: number) => void;
  toggle: (box: number, open: boolean) => void;
}

/** The picture as a tree of text, open where the picture is. */
export function Outline({ scene, open, metric, chosen, emphasis, choose, toggle }: OutlineProps) {
  const list = useRef<HTMLUListElement>(null);
  const { h, metrics } = scene;
  const all = visible(h, open);
  const rows = all.slice(0, MOST_ROWS);
  const scale = scene.scale(metric);
  const at = Math.max(
    0,
    rows.findIndex((row) => row.box === chosen),
  );
  const opens = (box: number): boolean => box >= 0 && h.groups[box]!.items.length > 0;

  // Move the list only: the page stays where it is.
  useEffect(() => {
    const row = list.current?.children[at] as HTMLElement | undefined;
    const box = list.current;
    if (!row || !box || chosen === null) return;
    if (row.offsetTop < box.scrollTop || row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight) {
      box.scrollTop = row.offsetTop - box.clientHeight / 3;
    }
  }, [chosen, at]);

  const go = (k: number): void => {
    const row = rows[Math.min(rows.length - 1, Math.max(0, k))];
    if (!row) return;
    choose(row.box);
    (list.current?.children[rows.indexOf(row)] as HTMLElement | undefined)?.focus({ preventScroll: true });
  };
  const keys = (event: KeyboardEvent, k: number): void => {
    const { box, level } = rows[k]!;
    const acts: Record<string, () => void> = {
      ArrowDown: () => go(k + 1),
      ArrowUp: () => go(k - 1),
      Home: () => go(0),
      End: () => go(rows.length - 1),
      ArrowRight: () => (opens(box) && !open.has(box) ? toggle(box, true) : go(k + 1)),
      ArrowLeft: () => {
        if (opens(box) && open.has(box)) toggle(box, false);
        else go(rows.findLastIndex((row, other) => other < k && row.level < level));
      },
      Enter: () => (opens(box) ? toggle(box, !open.has(box)) : choose(box)),
      " ": () => choose(box),
    };
    const act = acts[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  };

  return (
    <ul class="graph-outline" role="tree" aria-label="Modules and nodes, from the inputs to the loss" ref={list}>
      {rows.map(({ box, level }, k) => {
        const { title, kind } = nameOf(h, box);
        const faded = emphasis !== null && within(h, emphasis, box) === 0;
        const cut = box >= 0 && h.groups[box]!.kind === "cut";
        const { forward, backward } = cells(metrics, scale, box);
        const cell = metric === "bytes" ? forward : backward;
        const onScale = cell.look?.kind === "on" ? cell.look.at : null;
        return (
          <li
            key={box}
            role="treeitem"
            aria-level={level}
            aria-expanded={opens(box) ? open.has(box) : undefined}
            aria-selected={box === chosen}
            aria-label={`${fullName(h, box)}. ${cut ? "no gradient" : `${forward.title}; ${backward.title}`}`}
            tabIndex={k === at ? 0 : -1}
            class={`${faded ? "graph-faded" : ""} ${box === chosen ? "graph-chosen" : ""}`}
            style={{ paddingLeft: `${4 + 12 * (level - 1)}px` }}
            title={fullName(h, box)}
            onKeyDown={(event) => keys(event, k)}
            onClick={() => choose(box)}
          >
            <span
              class="graph-twist"
              onClick={(event) => {
                if (!opens(box)) return;
                event.stopPropagation();
                toggle(box, !open.has(box));
              }}
            >
              {opens(box) ? (open.has(box) ? "▾" : "▸") : cut ? "✂" : ""}
            </span>
            <span class="graph-row-name">{shorten(title, 34)}</span>
            <span class="graph-row-kind">{kind}</span>
            {!cut && (
              <span
                class={`graph-swatch ${cell.look && onScale === null ? `graph-swatch-${cell.look.kind}` : ""}`}
                style={onScale === null ? undefined : { background: colour(onScale), color: inkOn(onScale) }}
              >
                {cell.text}
              </span>
            )}
          </li>
        );
      })}
      {all.length > rows.length && (
        <li class="graph-rest quiet">{`and ${count(all.length - rows.length, "row")} more: close some groups`}</li>
      )}
    </ul>
  );
}
