/** A Python file in colours: just enough of the language to tell words, strings, numbers and comments apart. */

export type Kind = "plain" | "keyword" | "string" | "comment" | "number" | "call" | "decorator";
export type Token = readonly [Kind, string];

/** In what a line starts: 0 code, 1 a string of three double quotes, 2 one of three single quotes. */
export type Start = 0 | 1 | 2;

const KEYWORDS = new Set(
  (
    "and as assert async await break case class continue def del elif else except finally for from global if import in is " +
    "lambda match nonlocal not or pass raise return try while with yield True False None"
  ).split(" "),
);
const TRIPLE = ["", '"""', "'''"] as const;
const PART =
  /(#.*)|([rbfuRBFU]{0,2}(?:"""|'''))|([rbfuRBFU]{0,2}(?:"(?:\\.|[^"\\])*(?:"|$)|'(?:\\.|[^'\\])*(?:'|$)))|(@[\w.]+)|((?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?j?)|([^\W\d]\w*)|(\s+)|([^\w\s])/gu;

/** The tokens of a line and in what the next one starts. */
export function line(text: string, start: Start): { tokens: Token[]; next: Start } {
  const tokens: Token[] = [];
  let at = 0;
  let open: Start = start;
  for (;;) {
    if (open !== 0) {
      const end = closing(text, TRIPLE[open], at);
      if (end < 0) {
        add(tokens, "string", text.slice(at));
        return { tokens, next: open };
      }
      add(tokens, "string", text.slice(at, end));
      at = end;
      open = 0;
    }
    open = code(text, at, tokens);
    if (open === 0) return { tokens, next: 0 };
    at = tokens.reduce((sum, token) => sum + token[1].length, 0);
  }
}

/** Tokens from `at` on, until the line ends (0) or a long string opens. */
function code(text: string, at: number, tokens: Token[]): Start {
  PART.lastIndex = at;
  for (let found = PART.exec(text); found !== null; found = PART.exec(text)) {
    const [whole, comment, triple, string, decorator, number, word] = found;
    if (triple !== undefined) {
      add(tokens, "string", triple);
      return triple.endsWith('"') ? 1 : 2;
    }
    if (comment !== undefined) add(tokens, "comment", comment);
    else if (string !== undefined) add(tokens, "string", string);
    else if (decorator !== undefined && text.slice(0, found.index).trim() === "") add(tokens, "decorator", decorator);
    else if (number !== undefined) add(tokens, "number", number);
    else if (word !== undefined) add(tokens, named(word, text[PART.lastIndex]), word);
    else add(tokens, "plain", whole);
  }
  return 0;
}

function named(word: string, next: string | undefined): Kind {
  return KEYWORDS.has(word) ? "keyword" : next === "(" ? "call" : "plain";
}

/** Where a long string ends after its quotes, or -1. A backslash keeps the quote after it inside. */
function closing(text: string, quotes: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text.startsWith(quotes, at)) return at + 3;
  }
  return -1;
}

function add(tokens: Token[], kind: Kind, text: string): void {
  const last = tokens.at(-1);
  if (text === "") return;
  if (last?.[0] === kind) tokens[tokens.length - 1] = [kind, last[1] + text];
  else tokens.push([kind, text]);
}

/** By line of a file: in what it starts. */
export function starts(lines: readonly string[]): Uint8Array {
  const found = new Uint8Array(lines.length);
  let next: Start = 0;
  lines.forEach((text, i) => {
    found[i] = next;
    // Most lines hold no long string at all.
    if (next !== 0 || text.includes('"""') || text.includes("'''")) next = line(text, next).next;
  });
  return found;
}
