import { Link, useLocation } from "react-router";

import { Missing } from "@/components/layout/missing";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { usePageLinks } from "@/components/runs/page-links";

export default function NotFoundPage() {
  const links = usePageLinks();
  const { pathname } = useLocation();
  return (
    <>
      <title>Not found · MxD Explorer</title>
      <PageBar crumbs={[]} />
      <Missing title="Page not found">
        There is no page at <span className="mono">{pathname}</span>. The link may be incomplete, or from another
        version. <Link to={links.page("home")}>Go to Home</Link>, or search above.
      </Missing>
    </>
  );
}
