import { href, parse, type Route } from "../route";

/** The parts of a window that an address needs. */
export interface Place {
  location: { hash: string; href: string };
  history: { replaceState(data: unknown, unused: string, url: string): void };
  addEventListener(type: "hashchange" | "pagehide", listener: () => void): void;
  setTimeout(work: () => void, ms: number): number;
  clearTimeout(timer: number): void;
}

/** A browser refuses more than a hundred changes of the address in half a minute. */
const PAUSE = 350;

/**
 * What the page shows, in step with the address. The route here is right at once; the address follows a moment later
 * where a change makes no step of history, so that dragging does not write it sixty times a second.
 */
export class Address {
  route: Route;
  private timer = 0;

  constructor(
    private readonly place: Place,
    /** Called when what is shown changes; `back`: by Back, Forward or a typed address. */
    private readonly changed: (before: Route, back: boolean) => void,
  ) {
    this.route = parse(place.location.hash);
    place.addEventListener("hashchange", () => {
      const next = parse(place.location.hash);
      if (href(next) === href(this.route)) return;
      this.cancel();
      this.show(next, true);
    });
    place.addEventListener("pagehide", () => this.write());
  }

  go(route: Route, push: boolean): void {
    if (href(route) === href(this.route)) return;
    if (push) {
      this.write(); // Back comes to what was last seen.
      this.show(route);
      this.place.location.hash = href(route);
    } else {
      this.show(route);
      if (this.timer === 0) this.timer = this.place.setTimeout(() => this.write(), PAUSE);
    }
  }

  private show(route: Route, back = false): void {
    const before = this.route;
    this.route = route;
    this.changed(before, back);
  }

  private cancel(): void {
    if (this.timer !== 0) this.place.clearTimeout(this.timer);
    this.timer = 0;
  }

  /** A full address: in a frame without one of its own, a short one would be taken from the page around it. */
  private write(): void {
    if (this.timer === 0) return;
    this.cancel();
    try {
      this.place.history.replaceState(null, "", this.place.location.href.replace(/#.*$/s, "") + href(this.route));
    } catch {
      // A frame may forbid it: the page works, and only its address stays behind.
    }
  }
}

/** The route with parts changed; "" removes one. */
export function changed(route: Route, change: Record<string, string>): Route {
  const at = Object.fromEntries(Object.entries({ ...route.at, ...change }).filter(([, value]) => value !== ""));
  return { view: route.view, at };
}
