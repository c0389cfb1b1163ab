import { useEffect, useState } from "preact/hooks";

/** Whether the page is being printed: what is drawn only in sight is then drawn all. */
export function usePrinting(): boolean {
  const [printing, set] = useState(false);
  useEffect(() => {
    const [begin, end] = [() => set(true), () => set(false)];
    addEventListener("beforeprint", begin);
    addEventListener("afterprint", end);
    return () => {
      removeEventListener("beforeprint", begin);
      removeEventListener("afterprint", end);
    };
  }, []);
  return printing;
}
