/** Search dialog on narrow screens, where the top bar has no room for the search box. */

import { createContext, type ReactNode, useContext, useMemo, useState } from "react";
import { Dialog, Modal, ModalOverlay } from "react-aria-components";

import { SearchBox } from "./search-box";

interface SearchDialog {
  readonly open: () => void;
}

const SearchDialogContext = createContext<SearchDialog>({ open: () => undefined });

export function SearchDialogProvider({ children }: { readonly children: ReactNode }) {
  const [isOpen, setOpen] = useState(false);
  const value = useMemo(() => ({ open: () => setOpen(true) }), []);
  return (
    <SearchDialogContext value={value}>
      {children}
      <ModalOverlay className="overlay" isOpen={isOpen} onOpenChange={setOpen} isDismissable>
        <Modal className="modal at-top">
          <Dialog aria-label="Search">
            <SearchBox inDialog onChosen={() => setOpen(false)} />
          </Dialog>
        </Modal>
      </ModalOverlay>
    </SearchDialogContext>
  );
}

export function useSearchDialog(): SearchDialog {
  return useContext(SearchDialogContext);
}
