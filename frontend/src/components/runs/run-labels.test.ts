import { describe, expect, it } from "vitest";

import { activeK, hasHiddenLayer, hasTokenCount } from "./run-labels";

describe("the active experts per token", () => {
  it("are K or the trained range of K", () => {
    expect(activeK({ k: 16, min_k: null, has_top_k: true })).toBe("16");
    expect(activeK({ k: 16, min_k: 2, has_top_k: true })).toBe("2 to 16");
  });

  it("are not fixed with a threshold", () => {
    expect(activeK({ k: 16, min_k: null, has_top_k: false })).toBe("by threshold");
  });
});

describe("imported runs", () => {
  it("may lack a token count", () => {
    expect(hasTokenCount({ target_tokens: 0 })).toBe(false);
    expect(hasTokenCount({ target_tokens: 2048 })).toBe(true);
  });

  it("have a hidden layer only if they are mixtures", () => {
    expect(hasHiddenLayer({ method: "jumprelu-skip-transcoder" })).toBe(false);
    expect(hasHiddenLayer({ method: "autoencoder" })).toBe(false);
    expect(hasHiddenLayer({ method: "relu-mxd" })).toBe(true);
  });
});
