import { useMemo, useRef, useState } from "preact/hooks";
import { shorten } from "../../parts/names";
import type { Hierarchy } from "./hierarchy";

import { type Hit, search } from "./search";

/** Finds modules, parameters, nodes and lines of the graph that is shown. */
export function SearchBox({ h, go }: { h: Hierarchy; go: (box: number) => void }) {
  const [query, setQuery] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const { hits, total } = useMemo(() => search(h, query), [h, query]);

  const take = (hit: Hit | undefined): void => {
    if (!hit) return;
    setOpen(false);
    go(hit.box);
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") setAt(Math.min(hits.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter") take(hits[at]);
    else if (event.key === "Escape") {
      setOpen(false);
      input.current?.blur();
    } else return;
    event.preventDefault();
  };
  const shown = open && query.trim() !== "";
  return (
    <div
      class="graph-search"
      onBlur={(event) => event.currentTarget.contains(event.relatedTarget as Node | null) || setOpen(false)}
    >
      <input
        ref={input}
        type="text"
        placeholder="Find in this graph"
        role="combobox"
        aria-label="Find in the graph"
        aria-expanded={shown}
        aria-controls="graph-hits"
        aria-activedescendant={shown && hits.length ? `graph-hit-${at}` : undefined}
        autocomplete="off"
        spellcheck={false}
        value={query}
        onFocus={() => setOpen(true)}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          setAt(0);
          setOpen(true);
        }}
        onKeyDown={keys}
      />
      {shown && (
        <div class="graph-hits">
          <ul id="graph-hits" role="listbox" aria-label="Found">
            {hits.map((hit, k) => (
              <li
                key={hit.box}
                id={`graph-hit-${k}`}
                role="option"
                aria-selected={k === at}
                tabIndex={-1}
                onClick={() => take(hit)}
                title={hit.text}
              >
                <span class="graph-hit-what">{hit.what}</span>
                <span class="mono">{shorten(hit.text, 44)}</span>
                <span class="quiet">{shorten(hit.detail, 56)}</span>
              </li>
            ))}
          </ul>
          <p class="quiet" role="status">
            {total === 0
              ? "Nothing found in this graph."
              : total > hits.length
                ? `The first ${hits.length} of ${total.toLocaleString("en-US")} matches.`
                : total === 1
                  ? "1 match."
                  : `${total} matches.`}
          </p>
        </div>
      )}
    </div>
  );
}
