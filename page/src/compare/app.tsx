import "./compare.css";
import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import { useKeys, useLinks } from "../app";
import { Address, changed } from "../frame/address";
import { ThemeButton } from "../frame/header";
import { Help } from "../frame/help";
import { Guard } from "../frame/message";
import { href, whole } from "../route";
import type { Document, SideOf } from "./document";
import { Flow } from "./flow";
import { Ops } from "./ops";
import { Pair } from "./pair";
import { Runs } from "./runs";
import { Steps } from "./steps";
import { Mark, Verdict } from "./verdict";
import type { Props, View } from "./view";

const ALL: readonly View[] = [
  { name: "verdict", title: "Verdict", component: Verdict },
  { name: "flow", title: "Flow", component: Flow },
  { name: "ops", title: "Operations", component: Ops },
  { name: "steps", title: "Steps", component: Steps },
];
const RUNS: View = { name: "runs", title: "Runs", component: Runs };

/** The page of compared runs: two of them at a time. */
export function CompareApp({ doc }: { doc: Document }) {
  const [, draw] = useState(0);
  const [help, setHelp] = useState(false);
  const [themes, setThemes] = useState(0);
  const views = useMemo(() => (doc.groups.length > 0 ? [RUNS, ...ALL] : ALL), [doc]);
  const address = useMemo(() => new Address(window, () => draw((n) => n + 1)), []);
  const { route } = address;
  const view = views.find((one) => one.name === route.view) ?? views[0]!;
  const which = whole(route.at.with, doc.comparisons.length, 0);
  const pair = useMemo(() => new Pair(doc.comparisons[which]!, [doc.sides[0]!, doc.sides[which + 1]!]), [doc, which]);
  const mine: Record<string, string> = which > 0 ? { with: String(which) } : {};

  const set: Props["set"] = ({ view: to, ...change }, push = false) => {
    if (to !== undefined) address.go({ view: to, at: { ...mine, ...change } }, push);
    else address.go(changed({ view: view.name, at: route.at }, change), push);
  };
  const link: Props["link"] = (name, to = {}) => href({ view: name, at: { ...mine, ...to } });
  const names = useMemo(() => views.map((one) => one.name), [views]);
  useKeys(
    address,
    names,
    (what) => (what === "help" ? setHelp(true) : find()),
    () => mine,
  );
  useLinks(address);
  useLayoutEffect(() => window.scrollTo(0, 0), [view.name]);
  useEffect(() => {
    document.title = `${view.title}: ${doc.title} (backprobe)`;
  }, [view, doc]);
  return (
    <>
      <header class="frame-header">
        <div class="frame-run">
          <span class="frame-brand">backprobe compare</span>
          <h1 title={doc.title}>{doc.title}</h1>
          {view !== RUNS && <Mark one={pair.doc} />}
        </div>
        <div class="frame-buttons">
          <ThemeButton themed={() => setThemes((n) => n + 1)} />
          <button
            type="button"
            class="frame-help-button"
            onClick={() => setHelp(true)}
            aria-label="Keys"
            title="Keys (?)"
          >
            ?
          </button>
        </div>
        <div class="frame-facts compare-sides">
          <Side letter="A" side={pair.sides[0]} />
          {doc.comparisons.length > 1 ? (
            <span class="compare-side">
              <span class="compare-letter">B</span>
              <select
                aria-label="Compared with"
                value={String(which)}
                onChange={(e) => address.go({ view: view.name, at: { with: e.currentTarget.value } }, true)}
              >
                {doc.comparisons.map((_, k) => (
                  <option key={k} value={String(k)}>
                    {doc.sides[k + 1]!.name}
                  </option>
                ))}
              </select>
              <Facts side={pair.sides[1]} />
            </span>
          ) : (
            <Side letter="B" side={pair.sides[1]} />
          )}
        </div>
      </header>
      <nav class="frame-nav" aria-label="Views">
        {views.map((one, i) => (
          <a
            key={one.name}
            href={link(one.name)}
            aria-current={one.name === view.name ? "page" : undefined}
            title={`${one.title} (${i + 1})`}
          >
            {one.title}
          </a>
        ))}
      </nav>
      <main id="content" class={`frame-main compare-main-${view.name}`} tabIndex={-1}>
        <Guard title={view.title} key={`${view.name} ${which} ${themes}`}>
          <view.component {...{ doc, pair, set, link }} at={route.at} />
        </Guard>
      </main>
      {help && <Help views={views} search="Find an operation" close={() => setHelp(false)} />}
    </>
  );
}

/** To the field that operations are found in, where it is in sight. */
function find(): void {
  document.querySelector<HTMLInputElement>("main input[type=search]")?.focus();
}

function Side({ letter, side }: { letter: string; side: SideOf }) {
  return (
    <span class="compare-side">
      <span class="compare-letter">{letter}</span>
      <code title={side.script}>{side.name}</code>
      <Facts side={side} />
    </span>
  );
}

function Facts({ side }: { side: SideOf }) {
  const steps = side.steps.length === 1 ? `step ${side.steps[0]}` : `steps ${side.steps[0]} to ${side.steps.at(-1)}`;
  const facts = [steps, `${side.ops.toLocaleString("en-US")} operations`];
  if (side.versions.torch) facts.push(`torch ${side.versions.torch}`);
  return <span class="quiet">{facts.join(", ")}</span>;
}
