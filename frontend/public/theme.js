// Runs before the first paint, so that the system's theme does not flash up before the chosen one.
const theme = globalThis.localStorage.getItem("mxd-theme"); // stored by lib/browser/theme.ts
if (theme === "light" || theme === "dark") globalThis.document.documentElement.dataset.theme = theme;
