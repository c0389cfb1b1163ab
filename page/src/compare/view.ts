import type { ComponentType } from "preact";
import type { Document } from "./document";
import type { Pair } from "./pair";

export interface Props {
  doc: Document;
  pair: Pair;
  at: Readonly<Record<string, string>>;
  set: (change: Record<string, string>, push?: boolean) => void;
  /** The address of another view of the same two runs. */
  link: (view: string, at?: Record<string, string>) => string;
}

export interface View {
  name: string;
  title: string;
  component: ComponentType<Props>;
}
