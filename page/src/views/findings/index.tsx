import type { View } from "../view";
import { Findings } from "./findings";

export const findingsView: View = { name: "findings", title: "Findings", empty: () => null, component: Findings };
