import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { search } from "../data/find";
import { shorten } from "../parts/names";
import type { ViewProps } from "../views/view";

/** The search over everything, over the page. */
export function Search({ model, at, link, close }: Pick<ViewProps, "model" | "at" | "link"> & { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [query, setQuery] = useState("");
  const [place, move] = useState(0);
  const { hits, more } = useMemo(() => search(model, query, at), [model, query, at]);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  useEffect(() => {
    dialog.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [place]);
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") move(Math.min(place + 1, hits.length - 1));
    else if (event.key === "ArrowUp") move(Math.max(place - 1, 0));
    else if (event.key === "Enter") dialog.current?.querySelector<HTMLElement>('[aria-selected="true"] a')?.click();
    else return;
    event.preventDefault();
  };
  return (
    <dialog
      class="frame-help frame-search"
      aria-label="Search"
      ref={dialog}
      onClose={close}
      onClick={(event) => event.target === dialog.current && close()}
    >
      <input
        type="text"
        role="combobox"
        aria-label="Find a finding, step, parameter, module, operation or line"
        aria-expanded={hits.length > 0}
        aria-controls="frame-hits"
        aria-activedescendant={hits.length > 0 ? `frame-hit-${place}` : undefined}
        placeholder="Finding, step, parameter, module, operation, line"
        autocomplete="off"
        spellcheck={false}
        value={query}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          move(0);
        }}
        onKeyDown={keys}
      />
      <ul id="frame-hits" role="listbox" aria-label="Found">
        {hits.map((hit, i) => (
          <li key={i} id={`frame-hit-${i}`} role="option" aria-selected={i === place} tabIndex={-1}>
            <a href={link(hit.view, hit.at)} tabIndex={-1} onClick={close} title={hit.text}>
              <span class="quiet">{hit.what}</span>
              <span class={hit.what === "finding" || hit.what === "step" ? "" : "mono"}>{shorten(hit.text, 90)}</span>
              <span class="quiet">{shorten(hit.detail, 50)}</span>
            </a>
          </li>
        ))}
      </ul>
      {query.trim() !== "" && (
        <p class="quiet" role="status">
          {hits.length === 0
            ? "Nothing has that in it."
            : more.map(([what, n]) => `${n.toLocaleString("en-US")} more of sort ${what}`).join(", ")}
        </p>
      )}
    </dialog>
  );
}
