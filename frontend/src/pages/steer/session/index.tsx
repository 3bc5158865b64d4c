/** Short URL of a saved session; redirects to the Steering page. */

import { useQuery } from "@tanstack/react-query";
import { Navigate, useParams } from "react-router";

import { sessionQuery } from "@/api/queries";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { writeParams } from "@/hooks/use-url-state";
import { requestToParams, STEERING_PARAMS } from "@/pages/steer/steering/steering-params";

export default function SessionPage() {
  const { id = "" } = useParams();
  const { data, error, refetch } = useQuery(sessionQuery(id));
  if (data !== undefined) {
    const run = `?${new URLSearchParams({ run: data.run }).toString()}`;
    const search = writeParams(STEERING_PARAMS, run, { ...requestToParams(data.steering), session: data.id });
    return <Navigate replace to={`/steering${search}`} />;
  }
  return (
    <>
      <title>Session · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Session" }]} />
      {error === null ? (
        <LoadingState label="Opening session" />
      ) : (
        <ErrorState error={error} onRetry={() => void refetch()} />
      )}
    </>
  );
}
