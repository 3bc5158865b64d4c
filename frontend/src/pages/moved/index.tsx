/** Leads from the address of a former page to its content; parameters stay. */

import { Navigate, useLocation } from "react-router";

import { MOVED } from "@/lib/browser/moved";

export default function MovedPage() {
  const { pathname, search } = useLocation();
  const to = new URL(MOVED[pathname] ?? "/", window.location.origin);
  for (const [name, value] of new URLSearchParams(search)) to.searchParams.set(name, value);
  return <Navigate replace to={{ pathname: to.pathname, search: to.search, hash: to.hash }} />;
}
