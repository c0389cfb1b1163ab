import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Model } from "./data/model";
import { selected } from "./data/step";
import { Address, changed } from "./frame/address";
import { Header } from "./frame/header";
import { Help } from "./frame/help";
import { command, typing } from "./frame/keys";
import type { Link } from "./frame/live";
import { Guard } from "./frame/message";
import { Nav } from "./frame/nav";
import { Search } from "./frame/search";
import { StepBar } from "./frame/stepbar";
import { href, parse, type Route } from "./route";
import { VIEWS } from "./views";
import type { View, ViewProps } from "./views/view";

const NAMES = VIEWS.map((view) => view.name);

/** The page around the view that the address names. */
export function App({ model, live }: { model: Model; live: Link | null }) {
  const [, draw] = useState(0);
  const scroll = useMemo(() => new Scroll(), []);
  const address = useMemo(
    () =>
      new Address(window, (before, back) => {
        scroll.leave(before, back);
        draw((n) => n + 1);
      }),
    [],
  );
  const [over, setOver] = useState<"" | "help" | "search">("");
  // Pictures that are drawn on a canvas have the theme's colours in them: a view is made anew when the theme changes.
  const [themes, setThemes] = useState(0);
  const themed = () => setThemes((n) => n + 1);
  const view = VIEWS.find((one) => one.name === address.route.view) ?? VIEWS[0]!;

  const set = useMemo<ViewProps["set"]>(
    () =>
      (change, push = false) => {
        const route = address.route;
        const name = NAMES.includes(route.view) ? route.view : NAMES[0]!;
        address.go(changed({ view: name, at: route.at }, change), push);
      },
    [address],
  );
  const at = address.route.at;
  const link: ViewProps["link"] = (name, to = {}) => href({ view: name, at: keeping(at, to) });
  useKeys(address, NAMES, setOver, () => keeping(address.route.at, {}));
  useLinks(address);
  useLayoutEffect(() => scroll.arrive(address.route), [view.name]);
  useEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", themed);
    return () => system.removeEventListener("change", themed);
  }, []);
  useEffect(() => {
    document.title = `${view.title}: ${model.doc.run.name} (backprobe)`;
  }, [view, model]);

  return (
    <>
      {/* biome-ignore lint/a11y/useValidAnchor: what is after # is the page's own address, so a click moves the focus */}
      <a class="frame-skip" href="#content" onClick={skip}>
        Skip to the content
      </a>
      <Header run={model.doc.run} link={live} over={setOver} themed={themed} />
      <Nav views={VIEWS} current={view.name} model={model} link={link} />
      <main id="content" class={`frame-main frame-main-${view.name}`} tabIndex={-1}>
        <Shown key={`${view.name} ${themes}`} {...{ view, model, at, set, link }} step={selected(model, at)} />
      </main>
      {over === "help" && <Help views={VIEWS} close={() => setOver("")} />}
      {over === "search" && <Search {...{ model, at, link }} close={() => setOver("")} />}
    </>
  );
}

function Shown({ view, ...props }: ViewProps & { view: View }) {
  const nothing = view.empty(props.model);
  if (nothing !== null) {
    return (
      <div class="frame-empty">
        <h2>{view.title}</h2>
        <p>{nothing}</p>
      </div>
    );
  }
  return (
    <Guard title={view.title}>
      {view.steps && <StepBar view={view} {...props} />}
      <view.component {...props} />
    </Guard>
  );
}

/** Where a link goes, with the selected step and call where it names none of its own. */
export function keeping(at: ViewProps["at"], to: Record<string, string>): Record<string, string> {
  if (to.step !== undefined || to.call !== undefined) return to;
  const whole = (text: string | undefined) => text !== undefined && /^\d+$/.test(text);
  return { ...(whole(at.step) && { step: at.step! }), ...(whole(at.call) && { call: at.call! }), ...to };
}

/** The link to the content cannot use the address, which is the route. */
function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

/** A view that is opened starts at its top, and where it was left after Back; one that is only changed stays where it is. */
class Scroll {
  private readonly left = new Map<string, number>();
  private moved: "" | "on" | "back" = "";

  leave(route: Route, back: boolean): void {
    this.left.set(href(route), window.scrollY);
    this.moved = back ? "back" : "on";
  }

  arrive(route: Route): void {
    if (this.moved !== "") window.scrollTo(0, this.moved === "back" ? (this.left.get(href(route)) ?? 0) : 0);
  }
}

/** In a frame without an address of its own a link such as `#/flow` would load the page around it: we follow it here. */
export function useLinks(address: Address): void {
  useEffect(() => {
    const follow = (event: MouseEvent) => {
      if (
        event.defaultPrevented ||
        event.button !== 0 ||
        event.metaKey ||
        event.ctrlKey ||
        event.shiftKey ||
        event.altKey
      )
        return;
      const target = event.target instanceof Element ? event.target.closest("a[href^='#/']") : null;
      if (target === null) return;
      event.preventDefault();
      address.go(parse(target.getAttribute("href")!), true);
    };
    document.addEventListener("click", follow);
    return () => document.removeEventListener("click", follow);
  }, [address]);
}

/**
 * Keys of the page; a view that handles a key itself prevents its default.
 * `keep`: what the address keeps where a key goes to another view.
 */
export function useKeys(
  address: Address,
  names: readonly string[],
  open: (what: "help" | "search") => void,
  keep: () => Record<string, string>,
): void {
  const kept = useRef(keep);
  kept.current = keep;
  const after = useRef({ key: "", time: 0 });
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey) return;
      if (typing(event.target)) {
        if (event.key === "Escape") (event.target as HTMLElement).blur();
        return;
      }
      if (document.querySelector("dialog[open]")) return;
      const before = event.timeStamp - after.current.time < 1500 ? after.current.key : "";
      const meant = command(event.key, before, names);
      after.current = meant === "wait" ? { key: event.key, time: event.timeStamp } : { key: "", time: 0 };
      if (meant === null || meant === "wait" || meant === "close") return;
      event.preventDefault();
      if (meant === "help" || meant === "search") open(meant);
      else address.go({ view: meant.go, at: kept.current() }, true);
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [address]);
}
