import { PageBar } from "@/components/shell/page-bar";

export default function FrontierPage() {
  return (
    <>
      <title>Frontier · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Frontier" }]} />
    </>
  );
}
