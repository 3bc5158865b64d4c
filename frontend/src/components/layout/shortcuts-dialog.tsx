/** Keyboard shortcuts, grouped by page. */

import { Dialog, Heading, Modal, ModalOverlay } from "react-aria-components";

import { Button } from "@/components/ui/button";
import { keyCap, type ShortcutId, SHORTCUTS } from "@/lib/browser/shortcuts";

const IDS = Object.keys(SHORTCUTS) as ShortcutId[];
const GROUPS = [...new Set(IDS.map((id) => SHORTCUTS[id].where))];

function ShortcutGroup({ where }: { readonly where: string }) {
  return (
    <section>
      <h3>{where}</h3>
      <dl>
        {IDS.filter((id) => SHORTCUTS[id].where === where).map((id) => (
          <div key={id}>
            <dt>{SHORTCUTS[id].what}</dt>
            <dd>
              <kbd>{keyCap(id)}</kbd>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

interface ShortcutsDialogProps {
  readonly isOpen: boolean;
  readonly onOpenChange: (open: boolean) => void;
}

export function ShortcutsDialog({ isOpen, onOpenChange }: ShortcutsDialogProps) {
  return (
    <ModalOverlay className="overlay" isOpen={isOpen} onOpenChange={onOpenChange} isDismissable>
      <Modal className="modal">
        <Dialog className="shortcuts">
          <header>
            <Heading slot="title">Keyboard shortcuts</Heading>
            <Button variant="ghost" icon="close" aria-label="Close" onClick={() => onOpenChange(false)} />
          </header>
          {GROUPS.map((where) => (
            <ShortcutGroup key={where} where={where} />
          ))}
          <p className="dim">
            Ctrl K or ⌘ K opens the command palette: pages, experts, runs, sessions, and “steer 46 +2”. On tokens, the
            arrow keys move between tokens and Enter locks one. On sliders, the arrow keys move by one step, with Shift
            by ten; a double click resets to neutral.
          </p>
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}
