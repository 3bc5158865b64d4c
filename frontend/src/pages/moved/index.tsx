/** Leads from the address of a former page to its content; parameters stay. */

import { Navigate, useLocation } from "react-router";

import { MOVED } from "@/lib/browser/moved";

export default function MovedPage() {
  const { pathname, search } = useLocation();
  const [to = "/", hash = ""] = MOVED[pathname]?.split("#") ?? [];
  return <Navigate replace to={{ pathname: to, search, hash }} />;
}
