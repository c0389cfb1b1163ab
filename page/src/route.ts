/** What a page shows is in its address, `#/graph?call=0&node=12`, so that a link keeps it. */

export interface Route {
  view: string;
  /** What the view shows; keys and values as a person may type them. */
  at: Readonly<Record<string, string>>;
}

/** Never throws: an address that somebody mistyped shows the first view. */
export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { view: decoded(path), at: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function href(route: Route): string {
  const query = new URLSearchParams(Object.entries(route.at).filter(([, value]) => value !== "")).toString();
  return `#/${encodeURIComponent(route.view)}${query ? `?${query}` : ""}`;
}

/** A number in an address; `otherwise` where there is none or it is out of bounds. */
export function whole(text: string | undefined, below: number, otherwise: number): number {
  const value = Number(text);
  return text !== undefined && text !== "" && Number.isInteger(value) && value >= 0 && value < below
    ? value
    : otherwise;
}
