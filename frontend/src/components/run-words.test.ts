import { describe, expect, it } from "vitest";

import { layersInWords, writtenLayers } from "./run-words";

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
