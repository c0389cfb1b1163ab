import { useEffect, useRef } from "preact/hooks";
import type { View } from "../views/view";
import { letters } from "./keys";

/** The keys, over the page. The browser keeps the focus inside and closes it on Escape. */
export function Help({
  views,
  search = "Search: findings, steps, parameters, modules, operations, lines",
  close,
}: {
  views: readonly Pick<View, "name" | "title">[];
  /** What `/` does. */
  search?: string;
  close: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const byName = new Map([...letters(views.map((view) => view.name))].map(([letter, name]) => [name, letter]));
  return (
    <dialog
      class="frame-help"
      aria-label="Keys"
      ref={dialog}
      onClose={close}
      onClick={(event) => event.target === dialog.current && close()}
    >
      <div class="frame-help-inside">
        <h2>Keys</h2>
        <dl>
          {views.map((view, i) => (
            <div key={view.name}>
              <dt>
                <kbd>{(i + 1) % 10}</kbd> or <kbd>g</kbd> <kbd>{byName.get(view.name)}</kbd>
              </dt>
              <dd>{view.title}</dd>
            </div>
          ))}
          <div>
            <dt>
              <kbd>/</kbd>
            </dt>
            <dd>{search}</dd>
          </div>
          <div>
            <dt>
              <kbd>?</kbd>
            </dt>
            <dd>This list</dd>
          </div>
          <div>
            <dt>
              <kbd>Esc</kbd>
            </dt>
            <dd>Close, or leave a field</dd>
          </div>
        </dl>
        <p class="quiet">
          The address holds what you look at: copy it to come back here, or to show somebody with the same file.
        </p>
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </dialog>
  );
}
