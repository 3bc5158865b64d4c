import { PageBar } from "@/components/shell/page-bar";

export default function ExpertsPage() {
  return (
    <>
      <title>Experts · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Experts" }]} />
    </>
  );
}
