import { PageBar } from "@/components/shell/page-bar";

export default function ExpertPage() {
  return (
    <>
      <title>Expert · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Expert" }]} />
    </>
  );
}
