import type { ComponentType } from "preact";
import type { Model } from "../data/model";
import type { Shown } from "../data/step";

/** What every view gets. */
export interface ViewProps {
  model: Model;
  /** What the view shows, from the address; see `Route.at`. */
  at: Readonly<Record<string, string>>;
  /** Change parts of the address of this view; "" removes one. `push` makes a step that Back undoes. */
  set: (change: Record<string, string>, push?: boolean) => void;
  /** The selected step, which all views share. */
  step: number;
  /** The address of another view, for links; it keeps the selected step where `at` names none. */
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
  /** The steps that it has something of, in order; without it the view is of no one step. */
  steps?: (model: Model, at: ViewProps["at"]) => ArrayLike<number>;
  /** What these are steps with, in words, where it is not all of them. */
  of?: string;
  /** What it shows, and of which steps, where `step` is selected. */
  shows?: (model: Model, at: ViewProps["at"], step: number) => readonly Shown[];
  /** What goes from the address when another step is selected. */
  leave?: Readonly<Record<string, string>>;
}
