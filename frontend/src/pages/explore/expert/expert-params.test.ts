import { describe, expect, it } from "vitest";

import { RANDOM_GROUP, lockParam, openParam } from "./expert-params";

describe("URL parameters of an expert's page", () => {
  it("hold a locked token", () => {
    const token = { bin: 0, rank: 3, position: 57 };
    expect(lockParam.read(lockParam.write(token))).toEqual(token);
    expect(lockParam.read("0.3")).toBeNull();
    expect(lockParam.write(null)).toBeNull();
    const atRandom = { ...token, bin: RANDOM_GROUP };
    expect(lockParam.write(atRandom)).toBe("r.3.57");
    expect(lockParam.read("r.3.57")).toEqual(atRandom);
  });

  it("hold the expanded groups", () => {
    expect(openParam.read(openParam.write([0, 2]))).toEqual([0, 2]);
    expect(openParam.read(null)).toEqual([]);
    expect(openParam.read("x.1")).toEqual([1]);
    expect(openParam.write([])).toBeNull();
    expect(openParam.read(openParam.write([0, RANDOM_GROUP]))).toEqual([0, RANDOM_GROUP]);
  });
});
