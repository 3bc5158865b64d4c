/** Short URL of a saved session; redirects to the Steering page. */

import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { Link, useNavigate, useParams } from "react-router";

import { sessionQuery } from "@/api/queries";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { usePageLinks } from "@/components/runs/page-links";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { writeParams } from "@/hooks/use-url-state";
import { CHAT_PARAMS, OPENED, requestToParams, STEERING_PARAMS } from "@/pages/steer/steering/steering-params";

export default function SessionPage() {
  const { id = "" } = useParams();
  const { data, error, refetch } = useQuery(sessionQuery(id));
  const navigate = useNavigate();
  const links = usePageLinks();
  useEffect(() => {
    if (data === undefined) return;
    const run = `?${new URLSearchParams({ run: data.run }).toString()}`;
    const params = requestToParams(data.steering, data.result?.original_turns);
    const [page, spec] = params.turns?.length ? ["chat", CHAT_PARAMS] : ["steering", STEERING_PARAMS];
    const search = writeParams(spec, run, { ...params, session: data.id });
    void navigate(`/${page}${search}`, { replace: true, state: OPENED });
  }, [data, navigate]);
  // Stays on screen until the Steering page's chunk is loaded; <Navigate> would leave the page empty meanwhile.
  return (
    <>
      <title>Session · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Session" }]} />
      {error === null ? (
        <LoadingState label="Opening session" />
      ) : (
        <ErrorState error={error} onRetry={() => void refetch()}>
          The saved ones are under <Link to={links.page("sessions")}>Sessions</Link>.
        </ErrorState>
      )}
    </>
  );
}
