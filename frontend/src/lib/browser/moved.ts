/** Addresses of former pages, and where their content is now. */

export const MOVED: Readonly<Record<string, string>> = {
  "/verdict": "/evaluate",
  "/health": "/evaluate",
  "/faithfulness": "/evaluate#faithfulness",
  "/frontier": "/evaluate#frontier",
  "/benchmark": "/evaluate#benchmark",
  "/probing": "/evaluate#probing",
  "/compare": "/evaluate#compare",
  "/contrast": "/search?kind=texts",
  "/lists": "/experts",
};
