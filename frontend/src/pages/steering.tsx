import { PageBar } from "@/components/shell/page-bar";

export default function SteeringPage() {
  return (
    <>
      <title>Steering · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Steering" }]} />
    </>
  );
}
