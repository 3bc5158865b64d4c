import { describe, expect, it } from "vitest";

import { AT_RANDOM, lockParam, openParam } from "./expert-params";

describe("address of an expert's page", () => {
  it("holds a locked token", () => {
    const token = { interval: 0, rank: 3, position: 57 };
    expect(lockParam.read(lockParam.write(token))).toEqual(token);
    expect(lockParam.read("0.3")).toBeNull();
    expect(lockParam.write(null)).toBeNull();
    const atRandom = { ...token, interval: AT_RANDOM };
    expect(lockParam.write(atRandom)).toBe("r.3.57");
    expect(lockParam.read("r.3.57")).toEqual(atRandom);
  });

  it("holds the intervals that are open", () => {
    expect(openParam.read(openParam.write([0, 2]))).toEqual([0, 2]);
    expect(openParam.read(null)).toEqual([]);
    expect(openParam.read("x.1")).toEqual([1]);
    expect(openParam.write([])).toBeNull();
    expect(openParam.read(openParam.write([0, AT_RANDOM]))).toEqual([0, AT_RANDOM]);
  });
});
