/** Short names for what travels over HTTP. The shapes themselves come from the server's OpenAPI. */

import type { components } from "./schema";

type Schemas = components["schemas"];

export type Alternative = Schemas["Alternative"];
export type AutomaticLabel = Schemas["AutomaticLabel"];
export type Companion = Schemas["Companion"];
export type Context = Schemas["Context"];
export type EvaluationSummary = Schemas["EvaluationSummary"];
export type ExpertEffect = Schemas["ExpertEffect"];
export type ExpertDetail = Schemas["ExpertDetail"];
export type ExpertList = Schemas["ExpertList"];
export type ExpertPage = Schemas["ExpertPage"];
export type ExpertRow = Schemas["ExpertRow"];
export type Fact = Schemas["Fact"];
export type FigureData = Schemas["Figure"];
export type FigureName = FigureData["name"];
export type DoseDoneEvent = Schemas["DoseDoneEvent"];
export type DoseEvent = Schemas["DoseProgressEvent"] | DoseDoneEvent | Schemas["ErrorEvent"];
export type DosePoint = Schemas["DosePoint"];
export type DoseRequest = Schemas["DoseRequest"];
export type Health = Schemas["Health"];
export type Influence = Schemas["Influence"];
export type Interval = Schemas["Interval"];
export type ListEntry = Schemas["ListEntry"];
export type ListRef = Schemas["ListRef"];
export type ListSummary = Schemas["ListSummary"];
export type LayerRun = Schemas["LayerRun"];
export type LiveOptions = Schemas["LiveOptions"];
export type MetricPoint = Schemas["MetricPoint"];
export type PassageHit = Schemas["PassageHit"];
export type PassageResult = Schemas["PassageResult"];
export type PassageToken = Schemas["PassageToken"];
export type RoutedExpert = Schemas["RoutedExpert"];
export type RoutedExpertInfo = Schemas["RoutedExpertInfo"];
export type RoutedToken = Schemas["RoutedToken"];
export type RoutingResponse = Schemas["RoutingResponse"];
export type RunDetail = Schemas["RunDetail"];
export type RunStatus = RunSummary["status"];
export type RunSummary = Schemas["RunSummary"];
export type SavedSession = Schemas["SavedSession"];
export type SearchHit = Schemas["SearchHit"];
export type SimilarBy = Schemas["SimilarExperts"]["by"];
export type SimilarExpert = Schemas["SimilarExpert"];
export type SteeringRequest = Schemas["SteeringRequest"];
export type SessionSummary = Schemas["SessionSummary"];
export type Turn = Schemas["Turn"];
export type TokenCount = Schemas["TokenCount"];
export type TokenEffect = Schemas["TokenEffect"];

export type StartEvent = Schemas["StartEvent"];
export type ProgressEvent = Schemas["ProgressEvent"];
export type TokenEvent = Schemas["TokenEvent"];
export type DoneEvent = Schemas["DoneEvent"];
export type ErrorEvent = Schemas["ErrorEvent"];
export type SteeringEvent = StartEvent | ProgressEvent | TokenEvent | DoneEvent | ErrorEvent;
export type Arm = TokenEvent["arm"];
