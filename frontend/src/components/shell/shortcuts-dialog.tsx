/** All keys, by where they work. */

import { Dialog, Heading, Modal, ModalOverlay } from "react-aria-components";

import { keyCap, type ShortcutId, SHORTCUTS } from "@/lib/shortcuts";

import { Button } from "../button";

const IDS = Object.keys(SHORTCUTS) as ShortcutId[];
const PLACES = [...new Set(IDS.map((id) => SHORTCUTS[id].where))];

function Place({ where }: { readonly where: string }) {
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
          {PLACES.map((where) => (
            <Place key={where} where={where} />
          ))}
          <p className="dim">
            On tokens: arrows go from one to the next, Enter locks. On sliders: arrows move one step, Shift ten times as
            far, a double click goes back to neutral.
          </p>
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}
