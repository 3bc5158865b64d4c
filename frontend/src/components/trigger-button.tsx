/** The button of a menu or popover: React Aria's, so that it is wired to what it opens. */

export { Button as TriggerButton } from "react-aria-components";
