// Builds elements. Text becomes text nodes, never markup: whatever a model or a kernel wrote stays text.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Returns a new element.
 *
 * @param {string} tag an HTML tag, with classes after dots: `"td.number"`.
 * @param {Object} [properties] `on…` functions become listeners, `data` an object of data attributes, booleans
 *   attributes that are there or not; `null` and `undefined` are left out; the rest become attributes.
 * @param {...(Node|string|number|null|undefined|Array)} children
 */
export function element(tag, properties, ...children) {
  const [name, ...classes] = tag.split(".");
  return furnished(document.createElement(name), classes, properties, children);
}

/** Returns a new SVG element; see `element`. */
export function svg(tag, properties, ...children) {
  const [name, ...classes] = tag.split(".");
  return furnished(document.createElementNS(SVG, name), classes, properties, children);
}

/** Replaces all that is in an element. */
export function fill(parent, ...children) {
  parent.replaceChildren(...nodesOf(children));
  return parent;
}

/** Sets an element's text, and leaves the page alone where it says that already. */
export function setText(target, text) {
  const wanted = String(text);
  if (target.textContent !== wanted) target.textContent = wanted;
}

/** Returns text as the browser should lay it out by itself, whichever way it runs: it cannot turn its surroundings. */
export function isolated(text, properties) {
  return element("bdi", properties, text);
}

function furnished(made, classes, properties, children) {
  if (classes.length) made.classList.add(...classes);
  for (const [name, value] of Object.entries(properties ?? {})) give(made, name, value);
  made.append(...nodesOf(children));
  return made;
}

function give(made, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) {
    if (typeof value !== "function") throw new TypeError(`${name} needs a function`);
    made.addEventListener(name.slice(2), value);
  } else if (name === "data") {
    Object.assign(made.dataset, value);
  } else if (name === "style") {
    throw new TypeError("styles belong in a style sheet, or in element.style");
  } else if (name === "href" && !/^(#|\/(?!\/))/.test(value)) {
    throw new TypeError(`a link leads within the page: ${value}`);
  } else {
    made.setAttribute(name, value === true ? "" : String(value));
  }
}

function nodesOf(children) {
  return children.flat(Infinity).flatMap((child) => {
    if (child === null || child === undefined || child === false) return [];
    return [child instanceof Node ? child : document.createTextNode(String(child))];
  });
}
