import { useEffect, useRef } from "preact/hooks";
import type { Model } from "../data/model";
import { Sign } from "../parts/severity";
import type { View, ViewProps } from "../views/view";

interface Props {
  views: readonly View[];
  current: string;
  model: Model;
  link: ViewProps["link"];
}

/** The views; those with nothing to show are dimmed and say why when they are opened. */
export function Nav({ views, current, model, link }: Props) {
  const row = useRef<HTMLElement>(null);
  useEffect(() => {
    const tab = row.current?.querySelector<HTMLElement>('[aria-current="page"]');
    const box = row.current;
    if (!tab || !box) return;
    // On a phone the row scrolls; the current view stays in sight. Only this row, never the page.
    box.scrollLeft = tab.offsetLeft - (box.clientWidth - tab.clientWidth) / 2;
  }, [current]);
  return (
    <nav class="frame-nav" aria-label="Views" ref={row}>
      {views.map((view, i) => (
        <a
          key={view.name}
          href={link(view.name)}
          aria-current={view.name === current ? "page" : undefined}
          class={view.empty(model) === null ? "" : "frame-nothing"}
          title={`${view.title} (${(i + 1) % 10})`}
        >
          {view.title}
          {view.name === "findings" && <Found model={model} />}
          {view.name === "levels" && <Alarms model={model} />}
        </a>
      ))}
    </nav>
  );
}

function Found({ model }: { model: Model }) {
  const findings = model.doc.findings;
  const worst = (["error", "warning", "info"] as const).find((level) => findings.some((one) => one.severity === level));
  if (worst === undefined) return null;
  return (
    <span class={`frame-found severity-${worst}`}>
      <Sign level={worst} />
      {findings.length}
    </span>
  );
}

/** Alarms of levels, which come while a run goes on, whether they are asked for as findings or not. */
function Alarms({ model }: { model: Model }) {
  const count = model.doc.levels?.alarms.length ?? 0;
  if (count === 0) return null;
  return (
    <span class="frame-found severity-warning">
      <Sign level="warning" />
      {count}
    </span>
  );
}
