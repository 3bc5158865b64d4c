import { PageBar } from "@/components/shell/page-bar";

export default function RoutingPage() {
  return (
    <>
      <title>Routing · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Routing" }]} />
    </>
  );
}
