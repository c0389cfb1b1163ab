import { findingsView } from "./findings";
import { flowView } from "./flow";
import { graphView } from "./graph";
import { levelsView } from "./levels";
import { memoryView } from "./memory";
import { ranksView } from "./ranks";
import { sourceView } from "./source";
import { stepsView } from "./steps";
import { tensorsView } from "./tensors";
import { timeView } from "./time";
import type { View } from "./view";

/** The views in the order of the navigation; the first one is shown where the address names none. */
export const VIEWS: readonly View[] = [
  findingsView,
  flowView,
  graphView,
  stepsView,
  levelsView,
  timeView,
  memoryView,
  tensorsView,
  sourceView,
  ranksView,
];
