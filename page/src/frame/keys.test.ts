import { expect, test } from "vitest";
import { command, letters } from "./keys";

const NAMES = ["findings", "flow", "graph", "steps", "time", "memory", "tensors", "source"];

test("every view has a letter of its own", () => {
  const found = letters(NAMES);
  expect([...found.values()]).toEqual(NAMES);
  expect([...found.keys()].join("")).toBe("flgstmeo");
});

test("numbers and letters go to views", () => {
  expect(command("3", "", NAMES)).toEqual({ go: "graph" });
  expect(command("9", "", NAMES)).toBeNull();
  expect(command("0", "", NAMES)).toBeNull();
  expect(command("0", "", [...NAMES, "ninth", "tenth"])).toEqual({ go: "tenth" });
  expect(command("g", "", NAMES)).toBe("wait");
  expect(command("g", "g", NAMES)).toEqual({ go: "graph" });
  expect(command("q", "g", NAMES)).toBeNull();
});

test("help, search, nothing", () => {
  expect(command("?", "", NAMES)).toBe("help");
  expect(command("/", "", NAMES)).toBe("search");
  expect(command("Escape", "", NAMES)).toBe("close");
  expect(command("x", "", NAMES)).toBeNull();
});
