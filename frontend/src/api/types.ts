/** Types of the server's OpenAPI schema, and those that follow from them: shorter names, and unions of events. */

import type * as Server from "./schema";

export type * from "./schema";

export type CircuitGraph = Server.Circuit;
export type CircuitTarget = CircuitGraph["target"];
export type CurveName = NonNullable<
  NonNullable<Server.paths["/api/figures/{name}"]["get"]["parameters"]["query"]>["curve"]
>;
export type EditPrice = Server.EditPriceOutput;
export type Example = Server.Example;
export type Estimate = Server.Interval;
export type FigureData = Server.Figure;
export type FigureName = FigureData["name"];
export type RunRouting = Server.LayerRouting;
export type RunStatus = Server.RunSummary["status"];
export type SessionResult = Server.SessionResultInput;
export type SteeringFigures = Server.SteeringFiguresInput;
export type SimilarBy = Server.SimilarExperts["by"];
export type SnapshotRequest =
  | Server.ExpertSnapshot
  | Server.RoutingSnapshot
  | Server.GridSnapshot
  | Server.SteeringSnapshot
  | Server.CircuitSnapshot;
export type TermId = Server.Definition["id"];
export type Variant = Server.TokenEvent["variant"];

export type AblationEvent = Server.StepEvent | Server.AblationStoredEvent | Server.ErrorEvent;
export type ContrastEvent = Server.StepEvent | Server.ContrastDoneEvent | Server.ErrorEvent;
export type PriceEvent = Server.StepEvent | Server.PriceDoneEvent | Server.ErrorEvent;
export type SteeringEvent =
  Server.StartEvent | Server.ProgressEvent | Server.TokenEvent | Server.DoneEvent | Server.ErrorEvent;
export type StrengthSweepEvent = Server.StrengthSweepProgressEvent | Server.StrengthSweepDoneEvent | Server.ErrorEvent;
