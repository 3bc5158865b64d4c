/** Where what opens over a page is put: inside the page's landmark, so that nothing on screen lies outside of one. */

import type { ReactNode } from "react";
import { UNSAFE_PortalProvider as PortalProvider } from "react-aria";

const OVERLAYS_ID = "overlays";

/** The place for what opens; the body where no page is shown yet. */
export const overlayHost = () => document.getElementById(OVERLAYS_ID) ?? document.body;

export const Overlays = () => <div id={OVERLAYS_ID} />;

export function OverlayProvider({ children }: { readonly children: ReactNode }) {
  return <PortalProvider getContainer={overlayHost}>{children}</PortalProvider>;
}
