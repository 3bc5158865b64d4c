/** The short address of a saved session: opens it on the Steering page. */

import { useQuery } from "@tanstack/react-query";
import { Navigate, useParams } from "react-router";

import { sessionQuery } from "@/api/queries";
import { PageBar } from "@/components/shell/page-bar";
import { ErrorState, LoadingState } from "@/components/states";
import { writeParams } from "@/url-state";

import { paramsOfRequest, STEERING_PARAMS } from "./steering/steering-params";

export default function SessionPage() {
  const { id = "" } = useParams();
  const { data, error, refetch } = useQuery(sessionQuery(id));
  if (data !== undefined) {
    const run = `?${new URLSearchParams({ run: data.run }).toString()}`;
    const search = writeParams(STEERING_PARAMS, run, { ...paramsOfRequest(data.steering), session: data.id });
    return <Navigate replace to={`/steering${search}`} />;
  }
  return (
    <>
      <title>Session · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Session" }]} />
      {error === null ? (
        <LoadingState label="Opening the session" />
      ) : (
        <ErrorState error={error} onRetry={() => void refetch()} />
      )}
    </>
  );
}
