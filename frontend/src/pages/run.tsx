import { PageBar } from "@/components/shell/page-bar";

export default function RunPage() {
  return (
    <>
      <title>Run · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Run" }]} />
    </>
  );
}
