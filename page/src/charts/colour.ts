/** Colours that stand for data, and the page's own colours for canvases. */
import { useEffect, useState } from "preact/hooks";

type Rgb = readonly [number, number, number];

/** Cividis: even to the eye, also with red-green colour blindness. */
const SEQUENTIAL: readonly Rgb[] = [
  [0, 34, 78],
  [18, 53, 112],
  [59, 73, 108],
  [87, 93, 109],
  [112, 113, 115],
  [138, 134, 120],
  [165, 156, 116],
  [195, 179, 105],
  [225, 204, 85],
  [254, 232, 56],
]; // prettier-ignore

function mix(stops: readonly Rgb[], t: number): Rgb {
  const at = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2);
  const f = at - i;
  const [a, b] = [stops[i]!, stops[i + 1]!];
  return [0, 1, 2].map((k) => Math.round(a[k]! + (b[k]! - a[k]!) * f)) as unknown as Rgb;
}

/** Colour of `t` from 0 to 1. */
export function sequential(t: number): Rgb {
  return mix(SEQUENTIAL, t);
}

/** Colour of `t` from -1 (blue) over 0 (the middle) to 1 (orange). */
export function diverging(t: number): Rgb {
  return t < 0
    ? mix(
        [
          [245, 245, 243],
          [110, 170, 215],
          [0, 80, 150],
        ],
        -t,
      )
    : mix(
        [
          [245, 245, 243],
          [240, 150, 85],
          [165, 60, 0],
        ],
        t,
      ); // prettier-ignore
}

export function css([r, g, b]: Rgb): string {
  return `rgb(${r} ${g} ${b})`;
}

/** Hue of a name: the same name has the same one everywhere. */
export function hue(name: string): number {
  let h = 2166136261;
  for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 16777619);
  return ((h >>> 0) % 24) * 15;
}

/** A calm fill for things told apart by their names, under text of the page's ink. */
export function fill(name: string, dark: boolean): string {
  return dark ? `hsl(${hue(name)} 26% 29%)` : `hsl(${hue(name)} 48% 85%)`;
}

/** Colours of curves that a person chose, told apart by dashes and labels too. */
const CURVES = ["#0072b2", "#d55e00", "#00805c", "#b8558b", "#7a5195", "#8a6800", "#3f8fc4", "#6b6b6b"] as const;
const CURVES_DARK = ["#56b4e9", "#ff9e57", "#3cc79d", "#e49ac4", "#c9a4e6", "#e0b830", "#8fd0f5", "#b0b0b0"] as const;
export const MOST_CURVES = CURVES.length;
export function curveColour(k: number, dark: boolean): string {
  return (dark ? CURVES_DARK : CURVES)[k % CURVES.length]!;
}
export const DASHES: readonly (readonly number[])[] = [
  [],
  [6, 3],
  [2, 2],
  [8, 3, 2, 3],
  [],
  [6, 3],
  [2, 2],
  [8, 3, 2, 3],
];

const NAMES = [
  "page",
  "surface",
  "sunken",
  "ink",
  "quiet",
  "line",
  "accent",
  "accent-soft",
  "bad",
  "bad-soft",
  "warn",
  "good",
  "forward",
  "backward",
  "update",
] as const; // prettier-ignore
export type ColourName = (typeof NAMES)[number];
export type Palette = Readonly<Record<ColourName, string>> & { dark: boolean; font: string };

/** The page's colours as a canvas takes them. A custom property is not resolved until something uses it. */
export function palette(): Palette {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const style = getComputedStyle(probe);
  const found: Record<string, string> = {};
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    found[name] = style.color;
  }
  const font = getComputedStyle(document.body).fontFamily;
  probe.remove();
  const [r = 255] = (found.page ?? "").match(/[\d.]+/g)?.map(Number) ?? [];
  return { ...(found as Record<ColourName, string>), dark: r < 128, font };
}

/** The page's colours now; draws again when the theme changes. */
export function usePalette(): Palette {
  const [colours, change] = useState(palette);
  useEffect(() => {
    const read = (): void => change(palette());
    const media = matchMedia("(prefers-color-scheme: dark)");
    const watch = new MutationObserver(read);
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "style", "class"] });
    media.addEventListener("change", read);
    return () => {
      watch.disconnect();
      media.removeEventListener("change", read);
    };
  }, []);
  return colours;
}
