import { describe, expect, it } from "vitest";

import { activeK, hasHidden, layersInWords, saysTokens, writtenLayers } from "./run-words";

describe("the layers of a run", () => {
  it("are one, as a rule", () => {
    expect(writtenLayers({ layer: 3, last_layer: 3 })).toBe("3");
    expect(layersInWords({ layer: 3, last_layer: 3 })).toBe("layer 3");
  });

  it("are said from the first to the last where there are several", () => {
    expect(writtenLayers({ layer: 2, last_layer: 4 })).toBe("2 to 4");
    expect(layersInWords({ layer: 0, last_layer: 1 })).toBe("layers 0 to 1");
  });
});

describe("the active experts of a token", () => {
  it("are K, or as few as it was fitted for", () => {
    expect(activeK({ k: 16, smallest_k: null, has_top_k: true })).toBe("16");
    expect(activeK({ k: 16, smallest_k: 2, has_top_k: true })).toBe("2 to 16");
  });

  it("are as many as a threshold lets through where there is one", () => {
    expect(activeK({ k: 16, smallest_k: null, has_top_k: false })).toBe("by threshold");
  });
});

describe("a run of another program", () => {
  it("may not say how many tokens it was fitted on", () => {
    expect(saysTokens({ tokens_wanted: 0 })).toBe(false);
    expect(saysTokens({ tokens_wanted: 2048 })).toBe(true);
  });

  it("has a hidden vector only where it is a mixture", () => {
    expect(hasHidden({ method: "jumprelu-skip-transcoder" })).toBe(false);
    expect(hasHidden({ method: "autoencoder" })).toBe(false);
    expect(hasHidden({ method: "relu-mxd" })).toBe(true);
  });
});
