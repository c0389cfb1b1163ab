import type { ComponentType } from "preact";
import type { Model } from "../data/model";

/** What every view gets. */
export interface ViewProps {
  model: Model;
  /** What the view shows, from the address; see `Route.at`. */
  at: Readonly<Record<string, string>>;
  /** Change parts of the address of this view; "" removes one. `push` makes a step that Back undoes. */
  set: (change: Record<string, string>, push?: boolean) => void;
  /** The address of another view, for links. */
  link: (view: string, at?: Record<string, string>) => string;
}

/** A view as the page lists it. */
export interface View {
  /** Its name in the address. */
  name: string;
  title: string;
  /** Whether there is anything to show; else why not, in words. */
  empty: (model: Model) => string | null;
  component: ComponentType<ViewProps>;
}
