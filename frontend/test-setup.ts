/** What modules read of the browser while they load. Tests call functions, and render nothing. */

import { vi } from "vitest";

vi.stubGlobal("location", { origin: "" });
vi.stubGlobal("navigator", { userAgent: "" });
vi.stubGlobal("sessionStorage", { getItem: () => null });
