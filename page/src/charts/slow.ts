import { useEffect, useRef, useState } from "preact/hooks";

/**
 * A part of the address that moves quickly, as under a slider: what is seen follows at once, the address when it rests
 * (browsers refuse an address that changes hundreds of times). A change from outside wins.
 */
export function useSlow(value: string, write: (value: string) => void, wait = 220): [string, (value: string) => void] {
  const [now, change] = useState(value);
  const latest = useRef(write);
  latest.current = write;
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const written = useRef(value);
  useEffect(() => {
    if (value === written.current) return;
    written.current = value;
    clearTimeout(timer.current);
    change(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const move = (next: string): void => {
    change(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      written.current = next;
      latest.current(next);
    }, wait);
  };
  return [now, move];
}

/** "3.5~80" as two numbers in order, or null. */
export function pair(text: string | undefined): [number, number] | null {
  const found = /^(-?[\d.]+(?:e[+-]?\d+)?)~(-?[\d.]+(?:e[+-]?\d+)?)$/.exec(text ?? "");
  if (!found) return null;
  const [a, b] = [Number(found[1]), Number(found[2])];
  return Number.isFinite(a) && Number.isFinite(b) && a < b ? [a, b] : null;
}

export function paired([a, b]: readonly [number, number], digits = 2): string {
  return `${Number(a.toFixed(digits))}~${Number(b.toFixed(digits))}`;
}
