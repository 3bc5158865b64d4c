/** Dialogs over the page, and the container of popovers and dialogs: inside the main landmark, as accessibility requires. */

import type { ReactNode } from "react";
import { UNSAFE_PortalProvider as PortalProvider } from "react-aria";
import { Modal, ModalOverlay } from "react-aria-components";

const OVERLAYS_ID = "overlays";

/** The container, or the body while no page is rendered. */
export const overlayContainer = () => document.getElementById(OVERLAYS_ID) ?? document.body;

export const OverlayContainer = () => <div id={OVERLAYS_ID} />;

export function OverlayProvider({ children }: { readonly children: ReactNode }) {
  return <PortalProvider getContainer={overlayContainer}>{children}</PortalProvider>;
}

export interface DialogState {
  readonly isOpen: boolean;
  readonly onOpenChange: (open: boolean) => void;
}

interface OverlayProps extends DialogState {
  readonly className?: string;
  /** The dialog. */
  readonly children: ReactNode;
}

export const Overlay = ({ className = "", children, ...state }: OverlayProps) => (
  <ModalOverlay className="overlay" {...state} isDismissable>
    <Modal className={`modal ${className}`}>{children}</Modal>
  </ModalOverlay>
);
