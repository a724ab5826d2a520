/** The jobs view: what the address asks for, kept up to date while somebody looks. */

import { callJson, Failure, posting } from "./api.js";
import { Batches } from "./batches.js";
import { element } from "./dom.js";
import { filterQuery, isFiltered, isForDead, offerModels, setUpFilters, showFilters } from "./filters.js";
import { GroupPanel } from "./groups.js";
import { JobPanel } from "./job.js";
import { JobList } from "./list.js";
import { Pulse } from "./pulse.js";
import { Rows } from "./rows.js";
import { hasEnded } from "./shown.js";
import { asked, go, isShown } from "./view.js";
import { showFailure } from "./words.js";

const STATES = { lost: "Connection lost. Trying again…", live: "Live" };
const list = new JobList();
const rows = new Rows(element("rows"));
const panel = new JobPanel({ onNews: hear, onChange: changed, onGone: gone });
const group = new GroupPanel(() => pulse.beat());
const batches = new Batches();
const pulse = new Pulse(refresh, need, tell);
let query = null; // what the list was asked for last
let opened = "";
let isHere = false;
let models = null;

// ---- Keeping up to date

function need() {
  if (!isShown("jobs")) return "";
  return list.isLive || group.isLive || batches.isLive ? "live" : "seen";
}

async function refresh() {
  models ??= await loadModels();
  const works = [list.refresh(), group.refresh(asked().get("group_id") ?? ""), batches.refresh()];
  const ends = await Promise.allSettled(works);
  show();
  showEmpty();
  const job = list.jobs.find(({ id }) => id === opened);
  if (job) panel.hear(job);
  const failed = ends.find(({ status }) => status === "rejected");
  if (failed) throw failed.reason;
}

async function loadModels() {
  const { data } = await callJson("v1/models");
  offerModels(data.filter((model) => !model.alias_of).map(({ id }) => id));
  panel.models = data;
  return data;
}

function tell(failure) {
  const isLost = failure && !failure.code;
  element("jobs-error").hidden = !failure || isLost;
  if (failure && !isLost) showFailure(element("jobs-error"), failure);
  const state = failure ? (isLost ? "lost" : "off") : need();
  const words = STATES[state] ?? (list.jobs.length && !failure ? "All have ended" : "");
  element("jobs-state").dataset.state = state;
  if (element("jobs-state").textContent !== words) element("jobs-state").textContent = words;
}

// ---- What the address asks for

function arrive() {
  const hasCome = isShown("jobs") && !isHere;
  isHere = isShown("jobs");
  if (!isHere) return panel.open((opened = ""));
  showFilters();
  const wanted = filterQuery().toString();
  const isOther = wanted !== query;
  if (isOther) {
    query = wanted;
    list.ask(filterQuery());
  }
  if (isOther || hasCome) pulse.beat();
  const before = opened;
  opened = asked().get("job") ?? "";
  element("jobs-view").classList.toggle("open", Boolean(opened));
  show();
  panel.open(opened);
  if (before && !opened) rows.focus(before);
}

function show() {
  rows.show(list.jobs, opened);
  element("rows").ariaBusy = list.isStale;
  element("more").hidden = !list.hasMore;
  element("more").disabled = list.isStale;
  element("retry-shown").hidden = !isForDead() || list.isStale || !list.jobs.length;
}

function showEmpty() {
  element("no-jobs").hidden = list.isStale || list.jobs.length > 0;
  const words = isForDead() ? "dead" : isFiltered() ? "filtered" : "none";
  for (const hint of element("no-jobs").children) hint.hidden = hint.dataset.when !== words;
}

function hear(job) {
  list.update(job);
  show();
}

function changed(job) {
  hear(job);
  pulse.beat();
}

function gone(id) {
  list.remove(id);
  go({ job: "" }, true);
}

// ---- What is done with many

async function more() {
  await attempt(element("more"), () => list.more());
  show();
}

async function retryShown() {
  const dead = list.jobs.filter(hasEnded);
  let count = 0;
  await attempt(element("retry-shown"), async () => {
    for (const { id } of dead) count += await retry(id);
  });
  element("jobs-done").textContent = `${count} of ${dead.length} queued again.`;
  pulse.beat();
}

/** 1, or 0 where somebody was quicker. */
async function retry(id) {
  try {
    await callJson(`v1/audio/jobs/${id}/retry`, posting({}));
    return 1;
  } catch (error) {
    if (!["job_not_retryable", "job_not_found"].includes(error.code)) throw error;
    return 0;
  }
}

async function attempt(button, work) {
  element("many-error").hidden = true;
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    showFailure(element("many-error"), error);
  } finally {
    button.disabled = false;
  }
}

// ---- Wiring

setUpFilters();
element("more").addEventListener("click", more);
element("refresh").addEventListener("click", () => pulse.beat());
element("retry-shown").addEventListener("click", retryShown);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && opened && isShown("jobs") && !element("key-dialog").open) go({ job: "" });
});
addEventListener("hashchange", arrive);
addEventListener("keychange", () => {
  query = null;
  arrive();
});
arrive();
