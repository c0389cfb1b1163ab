import { expect, test } from "vitest";
import type { Finding, Run } from "../../data/document";
import { asMarkdown, asText, fence, plain, span } from "./words";

const run = {
  name: "r1",
  script: "t.py",
  arguments: ["--lr", "1"],
  torch: "2.13.0",
  python: "3.12",
  backprobe: "0.1",
} as Run;
const finding: Finding = {
  kind: "inplace",
  severity: "error",
  title: "relu_ changed `x` <b>",
  confidence: "certain",
  module: "a.b",
  node: null,
  tensor: "x",
  parameters: ["w", "b`c"],
  step: 3,
  rank: null,
  sites: [
    { role: "mutated", meaning: "", site: 0 },
    { role: "saved", meaning: "", site: 1 },
    { role: "x", meaning: "", site: 9 },
  ],
  evidence: { op: "```", shape: [2, 3] },
  advice: "Use relu.",
  at: null,
}; // prettier-ignore
const doc = {
  run,
  findings: [finding, { ...finding, sites: [], evidence: {}, parameters: [], kind: "none-grad" }],
  sites: [
    { file: "t.py", line: 4, function: "forward", text: "  y = x.relu_()  " },
    { file: "t.py", line: 3, function: "forward", text: "s = '```'" },
  ],
};

test("as text", () => {
  expect(asText(doc, [0])).toBe(
    `1. inplace  (error, certain)
   relu_ changed \`x\` <b>
   module      a.b
   tensor      x
   parameters  w, b\`c
   step        3
   mutated     t.py:4 in forward
                 y = x.relu_()
   saved       t.py:3 in forward
                 s = '\`\`\`'
   Use relu.
   op: "\`\`\`"
   shape: [2,3]

Run r1, t.py --lr 1, backprobe 0.1, torch 2.13.0, Python 3.12
`,
  );
});

test("as Markdown, nothing of a name gets a meaning", () => {
  expect(asMarkdown(doc, [0])).toBe(
    `### 1. \`inplace\` (error, certain)

relu\\_ changed \\\`x\\\` \\<b\\>

- module: \`a.b\`
- tensor: \`x\`
- step: \`3\`
- parameters: \`w\`, \`\`b\`c\`\`

**mutated**: \`t.py:4\` in \`forward\`

\`\`\`python
y = x.relu_()
\`\`\`

**saved**: \`t.py:3\` in \`forward\`

\`\`\`\`python
s = '\`\`\`'
\`\`\`\`

**What to do:** Use relu.

<details><summary>Evidence</summary>

\`\`\`\`json
{
 "op": "\`\`\`",
 "shape": [
  2,
  3
 ]
}
\`\`\`\`

</details>

Run r1, t.py --lr 1, backprobe 0.1, torch 2.13.0, Python 3.12
`,
  );
});

test("several keep their numbers", () => {
  expect(asText(doc, [0, 1]).match(/^\d\. .*$/gm)).toEqual([
    "1. inplace  (error, certain)",
    "2. none-grad  (error, certain)",
  ]);
  expect(asMarkdown(doc, [1])).toMatch(/^### 2\. `none-grad`/);
});

test("code and text", () => {
  expect(span("`a")).toBe("`` `a ``");
  expect(span("a\nb")).toBe("`a b`");
  expect(span(" ")).toBe("` `");
  expect(fence("a", "")).toBe("```\na\n```");
  expect(plain("a\n  b *c* [d](e) #1 $x$")).toBe("a b \\*c\\* \\[d\\](e) \\#1 \\$x\\$");
});
