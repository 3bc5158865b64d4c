import { PageBar } from "@/components/shell/page-bar";

export default function HomePage() {
  return (
    <>
      <title>Home · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Home" }]} />
    </>
  );
}
