import { findingsView } from "./findings";
import { sourceView } from "./source";
import type { View } from "./view";

/** The views in the order of the navigation; the first one is shown where the address names none. */
export const VIEWS: readonly View[] = [findingsView, sourceView];
