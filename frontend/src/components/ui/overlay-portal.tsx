/** Container of popovers and dialogs, inside the main landmark, as accessibility requires all content to be. */

import type { ReactNode } from "react";
import { UNSAFE_PortalProvider as PortalProvider } from "react-aria";

const OVERLAYS_ID = "overlays";

/** The container, or the body while no page is rendered. */
export const overlayContainer = () => document.getElementById(OVERLAYS_ID) ?? document.body;

export const OverlayContainer = () => <div id={OVERLAYS_ID} />;

export function OverlayProvider({ children }: { readonly children: ReactNode }) {
  return <PortalProvider getContainer={overlayContainer}>{children}</PortalProvider>;
}
