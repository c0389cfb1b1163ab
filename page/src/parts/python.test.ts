import { describe, expect, test } from "vitest";
import { line, type Start, starts } from "./python";

const kinds = (text: string, start: Start = 0) => line(text, start).tokens.map(([kind, part]) => `${kind}:${part}`);

describe("a line of Python", () => {
  test("words, calls, numbers, comments", () => {
    expect(kinds("return f(x, 1e-3)  # why")).toEqual([
      "keyword:return",
      "plain: ",
      "call:f",
      "plain:(x, ",
      "number:1e-3",
      "plain:)  ",
      "comment:# why",
    ]); // prettier-ignore
  });

  test("a sign inside a string is no comment", () => {
    expect(kinds(`a = "# \\" no" + f'{b}'`)).toEqual(["plain:a = ", `string:"# \\" no"`, "plain: + ", `string:f'{b}'`]);
  });

  test("a product of matrices is no decorator", () => {
    expect(kinds("  @torch.no_grad()")).toEqual(["plain:  ", "decorator:@torch.no_grad", "plain:()"]);
    expect(kinds("q @k.T")).toEqual(["plain:q @k.T"]);
  });

  test("a string that is not closed ends with its line", () => {
    expect(line("x = 'a", 0)).toEqual({
      tokens: [
        ["plain", "x = "],
        ["string", "'a"],
      ],
      next: 0,
    });
  });

  test("nothing of the text is lost", () => {
    for (const text of ["", "λ = «ü» $ ` 🤯 \t x", "'''a''' 'b' \"\"\"c", '"""', "r'\\' + b''", "1_000.5e+3j.real"]) {
      for (const start of [0, 1, 2] as const)
        expect(
          line(text, start)
            .tokens.map((one) => one[1])
            .join(""),
        ).toBe(text);
    }
  });
});

test("long strings go over lines", () => {
  const lines = ["def f():", '    """What # it', "    does '''", '    """  # end', "    x = '''a", "b''' + 1"];
  expect([...starts(lines)]).toEqual([0, 0, 1, 1, 0, 2]);
  expect(kinds(lines[3]!, 1)).toEqual(['string:    """', "plain:  ", "comment:# end"]);
  expect(kinds('""" \\""" still', 1)[0]).toBe('string:"""');
});
