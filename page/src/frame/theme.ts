export type Theme = "auto" | "light" | "dark";

const KEY = "backprobe-theme";
const ORDER: readonly Theme[] = ["auto", "light", "dark"];

/** What the reader chose in this browser. A frame may forbid the storage: then nothing was chosen. */
export function chosen(): Theme {
  try {
    return ORDER.find((one) => one === localStorage.getItem(KEY)) ?? "auto";
  } catch {
    return "auto";
  }
}

export function choose(theme: Theme): void {
  apply(theme);
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // It holds until the page is closed.
  }
}

export function apply(theme: Theme): void {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function following(theme: Theme): Theme {
  return ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length]!;
}
