import { PageBar } from "@/components/shell/page-bar";

export default function RunsPage() {
  return (
    <>
      <title>Runs · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Runs" }]} />
    </>
  );
}
