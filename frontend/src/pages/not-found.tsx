import { Link } from "react-router";

import { usePageLinks } from "@/components/links";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState } from "@/components/states";

export default function NotFoundPage() {
  const links = usePageLinks();
  return (
    <>
      <title>Not found · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Not found" }]} />
      <EmptyState title="There is no page here">
        The address may be cut short. <Link to={links.page("home")}>Go home</Link>.
      </EmptyState>
    </>
  );
}
