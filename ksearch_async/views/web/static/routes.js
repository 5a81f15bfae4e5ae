// Addresses within the page.

/** Returns the fragment of a view: `address("run", id, "node", "n4")` is `#/run/…/node/n4`. */
export function address(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}
