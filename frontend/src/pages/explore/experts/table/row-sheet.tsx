/** Bottom sheet on narrow screens with what does not fit into a table row. */

import { Fragment } from "react";
import { Dialog, Heading, Modal, ModalOverlay } from "react-aria-components";

import type { Column, ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { ActivationHistogram } from "@/components/plots/mini-histogram";
import { usePageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { useTray } from "@/components/tray/tray-context";
import { Button, LinkButton } from "@/components/ui/button";
import { formatValue, isStatistic } from "@/components/experts/columns";

interface SheetProps {
  readonly columns: readonly Column[];
  readonly row: ExpertRow;
  readonly onClose: () => void;
}

function Sheet({ columns, row, onClose }: SheetProps) {
  const links = usePageLinks();
  const tray = useTray();
  const inTray = tray.has(row.expert);
  return (
    <Dialog className="sheet">
      <header>
        <div>
          <span className="mono dim">{row.expert}</span>
          <Heading slot="title">
            <ExpertLabel label={row.label} automatic={row.automatic} />
          </Heading>
        </div>
        <Button variant="ghost" icon="close" aria-label="Close" onClick={onClose} />
      </header>
      <dl className="kv">
        {columns.filter(isStatistic).map((column) => (
          <Fragment key={column.key}>
            <dt>{column.title}</dt>
            <dd>
              {formatValue(column, row)} {column.unit !== null && <span>{column.unit}</span>}
            </dd>
          </Fragment>
        ))}
      </dl>
      <p className="chips">
        {row.top_tokens.map((token) => (
          <TokenChip key={token.id} text={token.text} />
        ))}
      </p>
      <ActivationHistogram row={row} height={56} caption="activation, log count" />
      <footer>
        <LinkButton to={links.expert(row.expert)}>Open</LinkButton>
        <Button
          variant={inTray ? "chosen" : "primary"}
          icon={inTray ? "check" : "plus"}
          onClick={() => tray.toggle(row.expert)}
        >
          {inTray ? "In tray" : "Add to tray"}
        </Button>
      </footer>
    </Dialog>
  );
}

type RowSheetProps = Omit<SheetProps, "row"> & { readonly row: ExpertRow | null };

export default function RowSheet({ columns, row, onClose }: RowSheetProps) {
  return (
    <ModalOverlay className="overlay" isOpen={row !== null} onOpenChange={(open) => !open && onClose()} isDismissable>
      <Modal className="modal bottom">{row !== null && <Sheet columns={columns} row={row} onClose={onClose} />}</Modal>
    </ModalOverlay>
  );
}
