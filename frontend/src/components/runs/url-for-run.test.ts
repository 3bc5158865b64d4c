import { describe, expect, it } from "vitest";

import { urlForRun } from "./page-links";

const toB = (pathname: string, search: string, edits = "") => urlForRun({ pathname, search }, "a", "b", edits);

describe("the same view of another run", () => {
  it("keeps prompt, token and settings", () => {
    expect(toB("/routing", "?run=a&prompt=One+day&lock=3.12&second=x&rank=rarest&k=4")).toBe(
      "/routing?run=b&prompt=One+day&lock=3&second=x&rank=rarest",
    );
    expect(toB("/search", "?run=a&kind=passage&text=Monday&by=mass")).toBe(
      "/search?run=b&kind=passage&text=Monday&by=mass",
    );
    expect(toB("/experts", "?run=a&search=html&sort=density&among=1,2")).toBe(
      "/experts?run=b&search=html&sort=density",
    );
  });

  it("rewrites edits and swaps compared runs", () => {
    expect(toB("/steering", "?run=a&prompt=It&edits=5:add:2&session=x", "a/5:add:2")).toBe(
      "/steering?run=b&prompt=It&edits=a%2F5:add:2",
    );
    expect(toB("/routing", "?run=a&layers=b,c")).toBe("/routing?run=b&layers=a,c");
    expect(toB("/compare", "?run=a&with=b")).toBe("/compare?run=b&with=a");
  });

  it("leads from an expert or a list to the table", () => {
    expect(toB("/experts/12", "?run=a&view=wide")).toBe("/experts?run=b");
    expect(toB("/runs/a", "?curve=loss")).toBe("/runs/b?curve=loss");
  });
});
