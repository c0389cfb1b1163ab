/** What a person takes away: text, tables and pictures as files, or on the clipboard. */

export function saveBlob(name: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A table as CSV (RFC 4180). A cell that a spreadsheet would take for a formula gets a quote before it. */
export function csv(columns: readonly string[], rows: Iterable<readonly (string | number)[]>): string {
  const cell = (value: string | number): string => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${[columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

export function saveCsv(name: string, columns: readonly string[], rows: Iterable<readonly (string | number)[]>): void {
  saveBlob(name, new Blob([csv(columns, rows)], { type: "text/csv" }));
}

const STYLES = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "fill-opacity",
  "stroke-opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "dominant-baseline",
] as const; // prettier-ignore

/** A picture that stands alone: a copy with the styles that the page gives it written into it. */
export function standalone(svg: SVGSVGElement): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const from = [svg, ...svg.querySelectorAll<SVGElement>("*")];
  const to = [copy, ...copy.querySelectorAll<SVGElement>("*")];
  from.forEach((element, i) => {
    const computed = getComputedStyle(element);
    for (const name of STYLES) to[i]!.style.setProperty(name, computed.getPropertyValue(name));
  });
  const box = svg.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  if (!copy.hasAttribute("width")) copy.setAttribute("width", String(box.width));
  if (!copy.hasAttribute("height")) copy.setAttribute("height", String(box.height));
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  return new XMLSerializer().serializeToString(copy);
}

export function saveSvg(name: string, svg: SVGSVGElement): void {
  saveBlob(name, new Blob([standalone(svg)], { type: "image/svg+xml" }));
}

export async function savePng(name: string, picture: SVGSVGElement | HTMLCanvasElement): Promise<void> {
  let canvas = picture;
  if (!(canvas instanceof HTMLCanvasElement)) {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(canvas))}`;
    await image.decode();
    canvas = document.createElement("canvas");
    canvas.width = 2 * image.width;
    canvas.height = 2 * image.height;
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  }
  const blob = await new Promise<Blob | null>((done) => (canvas as HTMLCanvasElement).toBlob(done));
  if (blob) saveBlob(name, blob);
}

/** Put text on the clipboard; false where the browser does not let us. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
