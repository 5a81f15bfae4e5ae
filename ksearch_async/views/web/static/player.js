// The slider that shows a run as it was: a place among its updates, or "now", which moves with the run.

import { element, setText } from "./dom.js";
import { count, duration, stamp } from "./format.js";

const LENGTHS_S = [[10, "in 10 s"], [30, "in 30 s"], [120, "in 2 min"]];

/**
 * Makes the slider.
 *
 * @param {Object} run a `RunStore`
 * @param {() => void} onChange is called after the position changed, at most once a frame.
 */
export class Player {
  #isNow = true;
  #position = 0;
  #frame = 0;
  #last = 0;
  #run;
  #onChange;

  constructor(run, onChange) {
    this.#run = run;
    this.#onChange = onChange;
    this.slider = element("input.time", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Moment of the run", oninput: () => this.#seek(Number(this.slider.value)) });
    this.play = element("button.play", { type: "button", onclick: () => this.toggle() }, "Play");
    this.now = element("button", { type: "button", onclick: () => this.goToNow(), "aria-pressed": "true" }, "Now");
    this.length = element("select", { "aria-label": "How long the whole run takes to play" }, LENGTHS_S.map(([seconds, said]) => element("option", { value: seconds }, said)));
    this.told = element("output.told", { "aria-live": "off" });
    this.element = element("section.player", { "aria-label": "Time lapse" }, this.play, this.length, this.slider, this.now, this.told);
  }

  /** True: what is shown follows the run. */
  get isNow() {
    return this.#isNow;
  }

  /** The moment that is shown. */
  get moment() {
    return this.#isNow ? this.#run.latest : this.#run.at(Math.floor(this.#position));
  }

  get isPlaying() {
    return this.#frame !== 0;
  }

  /** Takes up that the run went on, and shows where the slider stands. */
  refresh() {
    const last = Math.max(0, this.#run.length - 1);
    this.slider.max = String(last);
    if (this.#isNow) this.#position = last;
    this.slider.value = String(Math.floor(this.#position));
    const { moment } = this;
    const told = `round ${count(moment.totals.rounds)} · ${duration(moment.totals.elapsed_s)} · record ${count(moment.seq)} of ${count(this.#run.lastSeq)}`;
    setText(this.told, told);
    this.told.title = stamp(moment.at);
    this.slider.setAttribute("aria-valuetext", told);
    this.now.setAttribute("aria-pressed", String(this.#isNow));
    setText(this.play, this.isPlaying ? "Pause" : "Play");
  }

  /** Plays on, from the beginning if it stands at the end; or pauses. */
  toggle() {
    if (this.isPlaying) {
      this.#pause();
      return;
    }
    if (this.#isNow || this.#position >= this.#run.length - 1) this.#position = 0;
    this.#isNow = false;
    this.#last = performance.now();
    this.#frame = requestAnimationFrame((time) => this.#step(time));
    this.#onChange();
  }

  goToNow() {
    this.#pause();
    this.#isNow = true;
    this.#onChange();
  }

  close() {
    cancelAnimationFrame(this.#frame);
  }

  #seek(position) {
    this.#pause();
    this.#position = position;
    this.#isNow = position >= this.#run.length - 1;
    this.#onChange();
  }

  #pause() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.refresh();
  }

  #step(time) {
    const rate = this.#run.length / Number(this.length.value);
    const before = Math.floor(this.#position);
    this.#position += (rate * Math.max(0, time - this.#last)) / 1000;
    this.#last = time;
    if (this.#position >= this.#run.length - 1) {
      this.goToNow();
      return;
    }
    this.#frame = requestAnimationFrame((next) => this.#step(next));
    if (Math.floor(this.#position) !== before) this.#onChange();
  }
}
